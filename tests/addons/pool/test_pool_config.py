"""The pool's ConfigMap, a node's announcement, and the role of a hub that follows from both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addons.certificates.requested_certificate import RequestedCertificate
from addons.certificates.serving_certificate import StaticCertificate
from addons.inputs.pod_reports import PodReports
from addons.link.health import Cloud
from addons.link.link import UpstreamManager
from addons.link.servers import parse_relays
from addons.pool.announcement import Announcement
from addons.pool.pool_assembly import announce_no_port, join_pool
from addons.pool.pool_config import (
    MAX_LEADERS,
    NO_POOL,
    PoolConfig,
    Role,
    first_config,
    parse_pool_config,
    relay_config,
    role_of,
)
from addons.rules.in_force import RulesInForce
from addons.settings import parse_settings
from addons.telemetry import metrics
from kube.http.client import Unreachable
from kube.http.kubeconfig import NO_CREDENTIALS
from kube.peers import MAX_HUBS, LeaderHub
from kube.requests.request_info import ResourceType
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.observed import value_of
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.addons.test_settings import values
from tests.cloud.scriptable import ScriptableCloud
from tests.support.background import beside

ON = {"interconnectivity": "true", "enable-leader-election": "true"}
ENDPOINTS = ResourceType("", "v1", "endpoints")
SERVICES, SLICES = (
    ResourceType("", "v1", "services"),
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
)


def test_openyurts_configmap_keys_are_read() -> None:
    config = parse_pool_config(
        {
            **ON,
            "leaders": "b/10.0.0.2,a/10.0.0.1",
            "pool-scoped-metadata": "/v1/services,discovery.k8s.io/v1/endpointslices",
        }
    )
    assert config.leaders == (LeaderHub("a", "10.0.0.1"), LeaderHub("b", "10.0.0.2"))
    assert config.scope == (SERVICES, SLICES)
    assert config.shares(SERVICES)
    assert not config.shares(ENDPOINTS)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, NO_POOL),
        ({}, NO_POOL),
        ({**ON, "interconnectivity": "false"}, NO_POOL),
        ({**ON, "enable-leader-election": ""}, NO_POOL),
        ({**ON, "leaders": "a,/10.0.0.1,b/nowhere,c/10.0.0.3/x, ,"}, PoolConfig(is_shared=True)),
        ({**ON, "leaders": ",,/"}, PoolConfig(is_shared=True)),
        (
            {**ON, "leaders": "A b/10.0.0.1,-/10.0.0.1,a\n/10.0.0.1,relay x/10.0.0.1,a..b/10.0.0.1"},
            PoolConfig(is_shared=True),
        ),
        ({**ON, "leaders": "a/fe80::1%eth0,b/fe80::1%x\ny"}, PoolConfig(is_shared=True)),
        (
            {**ON, "leaders": " a/fd00::0:1 , b/10.0.0.1"},
            PoolConfig((LeaderHub("a", "fd00::1"), LeaderHub("b", "10.0.0.1")), is_shared=True),
        ),
        (
            {**ON, "pool-scoped-metadata": "/v1?x=/services,/../services,//services"},
            PoolConfig(is_shared=True),
        ),
        ({**ON, "deputies": "false"}, PoolConfig(is_shared=True, has_deputies=False)),
        ({**ON, "deputies": ""}, PoolConfig(is_shared=True)),
        (
            {**ON, "hubs": "b/10.0.0.1,x,a/fd00::0:1"},
            PoolConfig(hubs=(LeaderHub("a", "fd00::1"), LeaderHub("b", "10.0.0.1")), is_shared=True),
        ),
        # A pool never shares Secrets, even if the ConfigMap names them.
        ({**ON, "pool-scoped-metadata": "/v1/secrets,v1/services,a/b/c/d"}, PoolConfig(is_shared=True)),
    ],
)
def test_a_malformed_entry_of_the_pool_configuration_is_skipped(
    data: dict[str, str] | None, expected: PoolConfig
) -> None:
    assert parse_pool_config(data) == expected


@pytest.mark.parametrize(
    ("key", "bound", "most"), [("leaders", "leaders", MAX_LEADERS), ("hubs", "hubs of a pool", MAX_HUBS)]
)
def test_the_number_of_hubs_in_a_configmap_is_bounded(key: str, bound: str, most: int) -> None:
    named = ",".join(f"n{number}/10.0.{number // 256}.{number % 256}" for number in range(10_000))
    before = value_of(metrics.BOUNDS_REACHED.labels(bound))
    assert len(getattr(parse_pool_config({**ON, key: named}), key)) == most
    assert value_of(metrics.BOUNDS_REACHED.labels(bound)) == before + 1


def test_without_a_configmap_the_operators_leaders_share_the_default_resources() -> None:
    config = first_config([B, A])
    assert config == PoolConfig((A, B), (SERVICES, SLICES), is_shared=True)
    assert first_config([]) == NO_POOL


A, B = LeaderHub("a", "10.0.0.1"), LeaderHub("b", "10.0.0.2")


@pytest.mark.parametrize(
    ("leaders", "is_shared", "can_lead", "can_follow", "role"),
    [
        ((), True, True, True, Role.NONE),
        ((A, B), False, True, True, Role.NONE),
        ((A, B), True, True, True, Role.LEADER),
        ((A, B), True, True, False, Role.LEADER),
        ((A, B), True, False, True, Role.FOLLOWER),
        ((A,), True, False, True, Role.NONE),
        ((B,), True, True, True, Role.FOLLOWER),
        ((B,), True, False, True, Role.FOLLOWER),
        ((B,), True, True, False, Role.NONE),
    ],
)
def test_the_role_follows_from_the_configmap_and_the_node(
    leaders: tuple[LeaderHub, ...], is_shared: bool, can_lead: bool, can_follow: bool, role: Role
) -> None:
    config = PoolConfig(leaders, (SERVICES,), is_shared=is_shared)
    assert role_of(config, "a", can_lead=can_lead, can_follow=can_follow) is role


def test_a_relay_leads_and_shares_all_that_a_pool_may_share() -> None:
    config = relay_config("relay-1")
    assert role_of(config, "relay-1", can_lead=True, can_follow=True) is Role.LEADER
    assert all(map(config.shares, (SERVICES, ENDPOINTS, SLICES)))
    assert not config.shares(ResourceType("", "v1", "pods"))
    assert not config.has_deputies


def test_names_of_relays_are_invalid_as_node_names() -> None:
    (relay,) = parse_relays("https://10.0.0.9:10269")
    assert relay.node == "relay 10.0.0.9:10269"


class Node:
    """The annotations of the node in the cloud."""

    def __init__(self) -> None:
        self.is_up = True
        self.writes: asyncio.Queue[str] = asyncio.Queue()
        self.client = ScriptedClient(self._answer)

    def _answer(self, asked: Asked) -> dict[str, Any]:
        assert (asked.method, asked.path) == ("PATCH", "/api/v1/nodes/n1")
        assert asked.content_type == "application/merge-patch+json"
        if not self.is_up:
            self.is_up = True
            raise Unreachable("gone")
        self.writes.put_nowait(json.loads(asked.body)["metadata"]["annotations"]["edgehub.io/peer"])
        return {}


@asynccontextmanager
async def announced(node: Node) -> AsyncIterator[Announcement]:
    made = Announcement("n1", 10269, node.client)
    async with beside(made.run()):
        yield made


async def test_the_port_is_announced_and_withdrawn() -> None:
    node = Node()
    async with announced(node) as announcement:
        announcement.announce(True)
        assert await node.writes.get() == "10269"
        announcement.announce(True)
        announcement.announce(False)
        assert await node.writes.get() == "0"
    assert node.writes.empty()


async def test_an_announcement_is_retried_until_the_cloud_accepts_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    node = Node()
    node.is_up = False
    async with announced(node) as announcement:
        announcement.announce(True)
        assert await node.writes.get() == "10269"
    assert "not written yet: gone" in caplog.text


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, RequestedCertificate),
        ({"peer_cert": "/c", "peer_key": "/k"}, StaticCertificate),
        ({"peer_clients": "nodes", "mode": "cloud", "peer_cert": "/c", "peer_key": "/k"}, StaticCertificate),
    ],
)
async def test_the_certificate_is_the_operators_or_requested_and_a_relay_announces_nothing(
    given: dict[str, Any], kind: type, tmp_path: Path
) -> None:
    async def closed(_wanted: bool) -> None:
        """Leave the port as it is."""

    settings = replace(parse_settings(values(**given)), state_dir=tmp_path)
    async with ScriptableCloud() as cloud, HubWorld(cloud) as parts:
        client = ScriptedClient(lambda _: {})
        rules = RulesInForce((), frozenset(), lambda _problem, _uid: None)
        parts.inputs.reports[settings.node] = PodReports(parts.inputs.changed, parts.inputs.ask)
        pool = join_pool(
            settings,
            NO_CREDENTIALS,
            client,
            (parts.inputs, parts.sources, parts.serving, rules),
            UpstreamManager(Cloud([], "priority"), NO_CREDENTIALS),
            closed,
            lambda _connection, _why: None,
        )
        assert isinstance(pool.port.certificate, kind)
        assert (pool.port.announcement is None) is (settings.peer_clients == "nodes")
        assert pool.selector.attach_reader in parts.sources.on_new
        pool.close()


@pytest.mark.parametrize(("is_cached", "written"), [(True, ["/api/v1/nodes/n1"]), (False, [])])
async def test_a_hub_without_a_peer_port_withdraws_its_announcement(
    is_cached: bool, written: list[str], tmp_path: Path
) -> None:
    settings = replace(parse_settings(values(peer_port=0)), state_dir=tmp_path, node="n1")
    if is_cached:
        (tmp_path / "pki").mkdir()
        (tmp_path / "pki" / "peer.pem").touch()
    notified = asyncio.Event()

    def answer(_: Asked) -> dict[str, Any]:
        notified.set()
        return {}

    client = ScriptedClient(answer)
    telling = asyncio.create_task(announce_no_port(settings, client))
    await (notified.wait() if is_cached else telling)
    assert [each.path for each in client.asked] == written
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)
