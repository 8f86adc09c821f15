"""Facts of the pool, from stores that the test fills, and notifications of their changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from addons.filters.inputs import HubAddress
from addons.inputs.filter_inputs import FilterInputs
from addons.pool import pool_facts
from addons.pool.pool_config import FIRST_SCOPE, NO_POOL, PoolConfig, first_config
from addons.pool.pool_facts import PoolFacts, RelayFacts
from addons.views.source import Source
from kube.errors import forbidden, not_found
from kube.json_type import Json
from kube.peers import LeaderHub
from kube.reflector.list_watch import ListWatch
from kube.requests.node_pools import POOL_LABEL
from tests.addons.support.hand_source import HandSource
from tests.addons.support.samples import fill, node, node_pool
from tests.cloud.pki import Authority
from tests.support.background import beside
from tests.support.objects import obj

NODE = "n1"
POOL = POOL_LABEL.replace("/", "__")
PATIENCE = 20.0
"""Seconds that a test waits for an event that takes milliseconds."""
CONFIG = "metadata.name=leader-hub-p1"
POOL_OBJECT = "metadata.name=p1"
CLIENT_CA = "metadata.name=extension-apiserver-authentication"


def config_map(version: int, **data: str) -> Json:
    named = {key.replace("__", "-"): text for key, text in data.items()}
    return obj("ConfigMap", "x", "kube-system", version, data=named)


def published(version: int, leaders: str = "n2/10.0.0.2") -> Json:
    on = {"interconnectivity": "true", "enable__leader__election": "true"}
    return config_map(version, leaders=leaders, pool__scoped__metadata="/v1/services", **on)


class Cluster:
    """The opened sources, by their field selector or resource."""

    def __init__(self, first: PoolConfig = NO_POOL) -> None:
        self.sources: dict[str, HandSource] = {}
        self.changes = asyncio.Event()
        self.source("nodelabels").reflector.refusal = not_found("nodelabels.edgehub.io", "")
        inputs = FilterInputs(NODE, "", HubAddress(("169.254.2.1",), 10268), self._open, lambda _: None)
        self.inputs = inputs
        self.facts = PoolFacts(inputs, self._open, "kube-system", first)

    def _open(self, list_watch: ListWatch) -> Source:
        name = list_watch.field_selector or list_watch.type.resource
        return cast(Source, self.source(name))

    def source(self, name: str) -> HandSource:
        return self.sources.setdefault(name, HandSource())

    def put(self, name: str, kind: str, *values: Json, version: int) -> None:
        fill(self.source(name).store, values, version, kind=kind)

    async def until(self, check: Callable[[PoolFacts], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not check(self.facts):
                self.changes.clear()
                await self.changes.wait()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    async with beside(made.facts.run(made.changes.set)):
        await asyncio.sleep(0)
        made.put("metadata.name=n1", "Node", node(NODE, 1, **{POOL: "p1"}), version=1)
        yield made
    made.facts.close()
    made.inputs.close()
    await asyncio.sleep(0)


async def test_a_node_without_a_pool_is_known_to_have_none(cluster: Cluster) -> None:
    cluster.put("metadata.name=n1", "Node", node(NODE, 2), version=2)
    await cluster.until(lambda facts: facts.is_known and not facts.name)
    assert not cluster.facts.config.is_shared
    assert CLIENT_CA not in cluster.sources


async def test_the_pool_its_leaders_and_its_members_are_read(cluster: Cluster) -> None:
    await cluster.until(lambda facts: facts.name == "p1")
    assert not cluster.facts.is_known
    cluster.put(CONFIG, "ConfigMap", published(3), version=3)
    await cluster.until(lambda facts: facts.is_known)
    assert cluster.facts.config.leaders == (LeaderHub("n2", "10.0.0.2"),)
    assert cluster.facts.members is None
    cluster.put(POOL_OBJECT, "NodePool", node_pool("p1", [NODE, "n2"], 4), version=4)
    await cluster.until(lambda facts: facts.members == frozenset({NODE, "n2"}))
    cluster.put(POOL_OBJECT, "NodePool", node_pool("p1", [NODE], 5), version=5)
    await cluster.until(lambda facts: facts.members == frozenset({NODE}))
    cluster.put(CONFIG, "ConfigMap", published(6, "n3/10.0.0.3"), version=6)
    await cluster.until(lambda facts: facts.config.leaders == (LeaderHub("n3", "10.0.0.3"),))


async def test_without_node_pools_the_label_defines_the_members(cluster: Cluster) -> None:
    cluster.put(CONFIG, "ConfigMap", published(3), version=3)
    await cluster.until(lambda facts: facts.is_known)
    cluster.source(POOL_OBJECT).reflector.refuse(not_found("nodepools", ""))
    cluster.put("nodes", "Node", node("n2", 4, **{POOL: "p1"}), node("n3", 4), version=4)
    await cluster.until(lambda facts: facts.members == frozenset({NODE, "n2"}))


async def test_a_configmap_that_the_node_may_not_read_counts_as_missing(cluster: Cluster) -> None:
    await cluster.until(lambda facts: facts.name == "p1")
    cluster.source(CONFIG).reflector.refuse(forbidden("no"))
    await cluster.until(lambda facts: facts.is_known)
    assert not cluster.facts.config.is_shared


async def test_a_node_that_changes_its_pool_reads_the_other_pools_configmap(cluster: Cluster) -> None:
    await cluster.until(lambda facts: facts.name == "p1")
    cluster.put(CONFIG, "ConfigMap", published(3), version=3)
    await cluster.until(lambda facts: facts.config.is_shared)
    assert cluster.source(CONFIG).users == 1
    cluster.put("metadata.name=n1", "Node", node(NODE, 4, **{POOL: "p2"}), version=4)
    await cluster.until(lambda facts: facts.name == "p2")
    assert cluster.source(CONFIG).users == 0
    assert not cluster.facts.is_known
    assert not cluster.facts.config.is_shared


async def test_the_operators_leaders_are_used_until_the_configmap_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_facts, "STATIC_LEADERS_DELAY", 0.0)
    first = first_config([LeaderHub("n9", "10.0.0.9")])
    made = Cluster(first)
    async with beside(made.facts.run(made.changes.set)):
        await made.until(lambda facts: facts.config == first)
        assert not made.facts.is_known
        made.put("metadata.name=n1", "Node", node(NODE, 1, **{POOL: "p1"}), version=1)
        await made.until(lambda facts: facts.name == "p1")
        assert made.facts.config == first
        made.put(CONFIG, "ConfigMap", published(3), version=3)
        await made.until(lambda facts: facts.config.leaders == (LeaderHub("n2", "10.0.0.2"),))
        # In another pool they are not leaders.
        made.put("metadata.name=n1", "Node", node(NODE, 4, **{POOL: "p2"}), version=4)
        await made.until(lambda facts: facts.name == "p2")
        assert not made.facts.config.is_shared
    made.facts.close()
    made.inputs.close()


async def test_the_client_ca_is_read_from_the_cluster(cluster: Cluster) -> None:
    cluster.put(CONFIG, "ConfigMap", published(3), version=3)
    await cluster.until(lambda facts: facts.config.is_shared)
    assert cluster.facts.authorities == ()
    pem = Authority().certificate.decode()
    cluster.put(CLIENT_CA, "ConfigMap", config_map(4, client__ca__file=pem), version=4)
    await cluster.until(lambda facts: len(facts.authorities) == 1)
    cluster.put(CLIENT_CA, "ConfigMap", config_map(5, client__ca__file="garbage"), version=5)
    await cluster.until(lambda facts: facts.authorities == ())


async def test_a_relay_knows_its_nodes_at_once_and_uses_the_published_client_ca() -> None:
    made = Cluster()
    made.facts = facts = RelayFacts(made.inputs, made._open, "kube-system", "relay-1")
    async with beside(facts.run(made.changes.set)):
        await made.until(lambda found: found.is_known)
        assert facts.has("any")
        assert facts.config.shares(FIRST_SCOPE[0])
        text = Authority().certificate.decode()
        client_ca = config_map(1)
        client_ca["data"] = {"client-ca-file": text}
        made.put(CLIENT_CA, "ConfigMap", client_ca, version=1)
        await made.until(lambda found: len(found.authorities) == 1)
    facts.close()
    made.inputs.close()
