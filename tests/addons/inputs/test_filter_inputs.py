"""The inputs of filters, from stores filled by the test, and the notifications of changed inputs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import cast

import pytest

from addons.filters.inputs import HubAddress
from addons.inputs.filter_inputs import FilterInputs
from addons.inputs.input_sources import InputKind, unknown
from addons.inputs.recorded_inputs import RecordedInputs
from addons.views.source import Source
from kube.errors import forbidden, not_found
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.node_pools import POOL_LABEL
from kube.store.projection import InputKey
from kube.wire.encoding import Encoding
from tests.addons.support.hand_source import HandSource
from tests.addons.support.observed import until
from tests.addons.support.samples import endpoint_slice, fill, node, node_pool, raw, service

NODE = "n1"
POOL = POOL_LABEL.replace("/", "__")
WEB = ("default", "web")


BUCKETS_NAME = "nodelabels"
"""The ConfigMap in which the manager publishes node labels. Empty unless a test fills it."""


def in_pool(name: str, pool: str, version: int = 1) -> Json:
    return node(name, version, **{POOL: pool})


class Cluster:
    """The sources that the inputs opened, by the name of their list-watch, and the notified changes."""

    def __init__(self, pool: str = "") -> None:
        self.sources: dict[str, HandSource] = {}
        self.list_watches: dict[str, ListWatch] = {}
        self.notified: list[set[InputKey]] = []
        self.source(BUCKETS_NAME).reflector.refusal = not_found("nodelabels.edgehub.io", "")
        self.inputs = FilterInputs(NODE, pool, HubAddress(("169.254.2.1",), 10268), self._open, self._changed)

    def _open(self, list_watch: ListWatch) -> Source:
        own = (
            {"nodes": "own node", "nodepools": "own pool"}
            if list_watch.field_selector.startswith("metadata.name")
            else {}
        )
        name = own.get(list_watch.type.resource, list_watch.type.resource)
        if name != BUCKETS_NAME:
            self.list_watches[name] = list_watch
        return cast(Source, self.sources.setdefault(name, HandSource()))

    def _changed(self, touched: Collection[InputKey]) -> None:
        self.notified.append(set(touched))

    def source(self, name: str) -> HandSource:
        return self.sources.setdefault(name, HandSource())

    def fill(self, name: str, *values: Json, version: int = 10) -> None:
        kinds = {
            "services": "Service",
            "endpointslices": "EndpointSlice",
            "nodepools": "NodePool",
            "pods": "Pod",
        }
        fill(self.source(name).store, values, version, kind=kinds.get(name, "Node"))

    def apply(self, name: str, event: str, value: Json) -> set[InputKey]:
        """Apply a watch event to a source; return the notifications that it causes."""
        self.notified.clear()
        self.source(name).store.apply(event, raw(value))
        return set().union(*self.notified)

    def missing(self) -> None:
        """Refuse the kind NodePool as the cloud without its CRD does."""
        self.source("nodepools").reflector.refusal = not_found("nodepools.apps.openyurt.io", "")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    yield made
    made.inputs.close()


def service_facts(asked: RecordedInputs) -> dict[str, str] | None:
    facts = asked.service(*WEB)
    return None if facts is None else dict(facts.annotations)


# -- pending until known -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "source", "kind"),
    [
        (lambda asked: asked.service(*WEB), "services", InputKind.SERVICE),
        (lambda asked: asked.node_labels(NODE), "own node", InputKind.OWN_NODE),
        (lambda asked: asked.node_labels("n2"), "nodes", InputKind.NODE),
        (lambda asked: asked.own_pool() or None, "own node", InputKind.OWN_NODE),
        (lambda asked: asked.pool_nodes("p1"), "nodepools", InputKind.POOL),
        (lambda asked: asked.ready_nodes(*WEB, "IPv4") or None, "endpointslices", InputKind.SLICE),
    ],
)
async def test_an_input_is_pending_until_its_source_is_complete(
    cluster: Cluster, ask: Callable[[RecordedInputs], object], source: str, kind: InputKind
) -> None:
    asked = cluster.inputs.ask()
    assert ask(asked) is None
    assert asked.pending
    assert unknown(kind) in asked.reads, "so that it is asked again when the source is there"
    assert list(cluster.list_watches) == [source], "only this source was started"
    cluster.fill(source)
    assert {unknown(kind)} <= set().union(*cluster.notified)
    asked = cluster.inputs.ask()
    assert ask(asked) is None
    assert not asked.pending, "known to be absent"


async def test_sources_list_no_more_than_the_inputs_need(cluster: Cluster) -> None:
    asked = cluster.inputs.ask()
    asked.service(*WEB)
    asked.node_labels(NODE)
    asked.node_labels("n2")
    asked.pool_nodes("p1")
    asked.ready_nodes(*WEB, "IPv4")
    found = {name: (each.metadata_only, each.encoding) for name, each in cluster.list_watches.items()}
    assert found == {
        "services": (False, Encoding.PROTOBUF),
        "own node": (True, Encoding.PROTOBUF),
        "nodes": (True, Encoding.PROTOBUF),
        "nodepools": (False, Encoding.JSON),
        "endpointslices": (False, Encoding.PROTOBUF),
    }
    assert cluster.list_watches["own node"].field_selector == f"metadata.name={NODE}"


async def test_inputs_are_missing_and_not_pending_without_a_cloud_or_a_copy(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The hub starts offline from the state folder of an older hub that did not read these inputs."""
    buckets, services = cluster.source(BUCKETS_NAME), cluster.source("services")
    buckets.reflector.refusal = None
    cluster.fill("nodes", node("n2", 1, zone="z"))
    asked = cluster.inputs.ask()
    assert asked.node_labels("n2") is None
    assert service_facts(asked) is None
    assert asked.pending
    cluster.notified.clear()
    for source in (buckets, services):
        source.is_lost = True
        source.reflector.changed.notify()
    await until(lambda: len(cluster.notified) == 2)
    asked = cluster.inputs.ask()
    assert dict(asked.node_labels("n2") or {}) == {"zone": "z"}, "the labels that Nodes themselves have"
    assert service_facts(asked) is None
    assert not asked.pending
    assert unknown(InputKind.SERVICE) in asked.reads, "filtered again as soon as the cloud answers"
    assert "no cloud, and no copy of of hand: filters run without it until the cloud answers" in caplog.text
    cluster.fill("services", service("web", 1))
    assert cluster.notified[-1] == {unknown(InputKind.SERVICE)}
    assert service_facts(cluster.inputs.ask()) == {}


async def test_a_refused_source_leaves_the_input_pending(cluster: Cluster) -> None:
    cluster.fill("services", service("web", 1))
    assert service_facts(cluster.inputs.ask()) == {}
    cluster.source("services").reflector.refuse(forbidden("no"))
    asked = cluster.inputs.ask()
    assert service_facts(asked) is None
    assert asked.pending


# -- answers -------------------------------------------------------------------------------------------------------


async def test_labels_of_a_node_are_read(cluster: Cluster) -> None:
    cluster.fill("own node", node(NODE, 1, zone="a"))
    cluster.fill("nodes", node(NODE, 1, zone="stale"), node("n2", 2, zone="b"))
    assert cluster.inputs.ask().node_labels(NODE) == {"zone": "a"}
    assert cluster.inputs.ask().node_labels("n2") == {"zone": "b"}
    assert cluster.inputs.ask().node_labels("n3") is None


async def test_the_pool_option_overrides_the_nodes_pool_label() -> None:
    made = Cluster("from-option")
    assert made.inputs.ask().own_pool() == "from-option"
    assert not made.list_watches, "nothing was asked of the cloud"
    made.inputs.close()


@pytest.mark.parametrize("order", ["asked first", "filled first"])
async def test_node_labels_define_pools_in_a_cluster_without_the_kind_nodepool(
    cluster: Cluster, order: str
) -> None:
    """The source's first list may arrive before or after a filter's first read."""
    cluster.missing()
    if order == "asked first":
        asked = cluster.inputs.ask()
        assert (asked.pool_nodes("p1"), asked.pending) == (None, True)
    cluster.fill("nodes", in_pool("n1", "stale"), in_pool("n2", "p1"), in_pool("n3", "p2"), node("n4", 1))
    cluster.fill("own node", in_pool(NODE, "p1"))
    asked = cluster.inputs.ask()
    assert (asked.pool_nodes("p1"), asked.pending) == (frozenset({"n1", "n2"}), False)
    assert cluster.inputs.ask().pool_nodes("p2") == frozenset({"n3"})
    assert cluster.inputs.ask().pool_nodes("p3") is None


async def test_a_changed_node_label_notifies_its_readers(cluster: Cluster) -> None:
    cluster.missing()
    cluster.inputs.ask().pool_nodes("p1")
    cluster.fill("nodes", version=1)
    cluster.fill("own node", version=1)
    assert cluster.apply("nodes", "ADDED", in_pool("n2", "p1", 11)) >= {(InputKind.POOL, "p1")}
    assert cluster.inputs.ask().pool_nodes("p1") == frozenset({"n2"})
    moved = cluster.apply("nodes", "MODIFIED", in_pool("n2", "p2", 12))
    assert moved >= {(InputKind.POOL, "p1"), (InputKind.POOL, "p2")}
    assert cluster.inputs.ask().pool_nodes("p1") is None
    assert cluster.inputs.ask().pool_nodes("p2") == frozenset({"n2"})
    assert cluster.apply("nodes", "DELETED", in_pool("n2", "p2", 13)) >= {(InputKind.POOL, "p2")}
    assert cluster.inputs.ask().pool_nodes("p2") is None


async def test_nodepools_replace_pool_labels_once_the_kind_is_installed(cluster: Cluster) -> None:
    cluster.missing()
    cluster.inputs.ask().pool_nodes("p1")
    cluster.fill("nodes", in_pool("n1", "p1"))
    asked = cluster.inputs.ask()
    asked.pool_nodes("p1")
    cluster.notified.clear()
    cluster.source("nodepools").reflector.refusal = None
    cluster.fill("nodepools", node_pool("p1", ["n9"], 1))
    assert asked.reads & set().union(*cluster.notified), "who was told by labels is asked again"
    assert cluster.inputs.ask().pool_nodes("p1") == frozenset({"n9"})


@pytest.mark.parametrize("order", ["asked first", "filled first"])
async def test_ready_nodes_are_those_of_all_slices_of_the_service_and_family(
    cluster: Cluster, order: str
) -> None:
    if order == "asked first":
        cluster.inputs.ask().ready_nodes(*WEB, "IPv4")
    v6 = {**endpoint_slice("web-6", ["n6"], 3), "addressType": "IPv6"}
    cluster.fill(
        "endpointslices",
        endpoint_slice("web-1", ["n1"], 1),
        endpoint_slice("web-2", ["n2", "n3"], 2),
        v6,
        endpoint_slice("web-4", ["n4"], 4, ready=False),
        endpoint_slice("db-1", ["n5"], 5, "db"),
    )
    assert cluster.inputs.ask().ready_nodes(*WEB, "IPv4") == frozenset({"n1", "n2", "n3"})
    assert cluster.inputs.ask().ready_nodes(*WEB, "IPv6") == frozenset({"n6"})
    assert cluster.inputs.ask().ready_nodes("default", "none", "IPv4") == frozenset()


async def test_a_slice_that_moves_to_another_service_notifies_readers_of_both(cluster: Cluster) -> None:
    cluster.inputs.ask().ready_nodes(*WEB, "IPv4")
    cluster.fill("endpointslices")
    assert cluster.apply("endpointslices", "ADDED", endpoint_slice("s", ["n1"], 11)) == {
        (InputKind.SLICE, WEB),
        (InputKind.SLICE, WEB, "pods"),
    }
    moved = cluster.apply("endpointslices", "MODIFIED", endpoint_slice("s", ["n1"], 12, "db"))
    assert moved == {
        (InputKind.SLICE, each, *more) for each in (WEB, ("default", "db")) for more in ((), ("pods",))
    }
    assert cluster.inputs.ask().ready_nodes(*WEB, "IPv4") == frozenset()
    assert cluster.inputs.ask().ready_nodes("default", "db", "IPv4") == frozenset({"n1"})
    cluster.apply("endpointslices", "DELETED", endpoint_slice("s", ["n1"], 13, "db"))
    assert cluster.inputs.ask().ready_nodes("default", "db", "IPv4") == frozenset()


# -- notifications -------------------------------------------------------------------------------------------------


async def test_only_the_nodes_own_pool_is_read_from_the_cloud() -> None:
    """A node that became Ready in any pool once sent 3 KB to every hub of the cluster."""
    cluster = Cluster()
    cluster.fill("own node", in_pool(NODE, "p1"))
    cluster.fill("own pool", node_pool("p1", [NODE, "n2"], 1))
    asked = cluster.inputs.ask()
    assert asked.pool_nodes(asked.own_pool()) == frozenset({NODE, "n2"})
    assert cluster.list_watches["own pool"].query == {"fieldSelector": "metadata.name=p1"}
    assert "nodepools" not in cluster.list_watches
    assert cluster.apply("own pool", "MODIFIED", node_pool("p1", [NODE], 11)) & asked.reads
    former = cluster.source("own pool")
    assert former.users == 1
    del cluster.sources["own pool"]
    cluster.fill("own pool", node_pool("p2", ["n3"], 1))
    assert cluster.apply("own node", "MODIFIED", in_pool(NODE, "p2", 12)) & asked.reads
    asked = cluster.inputs.ask()
    asked.service(*WEB)
    assert asked.pool_nodes(asked.own_pool()) == frozenset({"n3", NODE})
    assert cluster.list_watches["own pool"].query == {"fieldSelector": "metadata.name=p2"}
    assert former.users == 0, "nobody asks for the pool that the node has left"
    cluster.fill("nodepools", node_pool("p1", ["n4"], 1), node_pool("p2", ["n3"], 1))
    assert cluster.inputs.ask().pool_nodes("p1") == frozenset({"n4"}), "a filter may ask for another"
    events = cluster.apply("nodepools", "MODIFIED", node_pool("p2", ["n3", "n5"], 13))
    assert events == set(), "the pool's own source tells of it"
    cluster.inputs.close()


async def test_a_new_pool_notifies_readers_that_found_it_absent(cluster: Cluster) -> None:
    cluster.fill("nodepools")
    asked = cluster.inputs.ask()
    assert asked.pool_nodes("p1") is None
    assert cluster.apply("nodepools", "ADDED", node_pool("p1", ["n1"], 11)) & asked.reads


@pytest.mark.parametrize("status", [None, {}, {"conditions": []}, {"leaderNum": 1}])
async def test_a_pool_without_a_status_is_unknown(cluster: Cluster, status: Json | None) -> None:
    """An empty pool would leave kube-proxy a Service without endpoints until the manager writes the status, for ever
    without a manager."""
    new = node_pool("p1", [], 11) | ({} if status is None else {"status": status})
    if status is None:
        del new["status"]
    cluster.fill("nodepools", new)
    asked = cluster.inputs.ask()
    assert asked.pool_nodes("p1") is None
    counted = node_pool("p1", [], 12) | {"status": {"readyNodeNum": 0, "unreadyNodeNum": 0}}
    assert cluster.apply("nodepools", "MODIFIED", counted) & asked.reads
    asked = cluster.inputs.ask()
    assert asked.pool_nodes("p1") == frozenset(), "OpenYurt writes no empty list"
    assert cluster.apply("nodepools", "MODIFIED", node_pool("p1", ["n1"], 13)) & asked.reads


async def test_this_node_belongs_to_the_pool_in_its_label(cluster: Cluster) -> None:
    cluster.fill("own node", in_pool(NODE, "p1"))
    cluster.inputs.ask().own_pool()
    cluster.fill("own pool", node_pool("p1", ["n2"], 1))
    members = cluster.inputs.ask().pool_nodes("p1")
    assert members == frozenset({"n2", NODE})
    assert members is not None
    assert NODE in members
    cluster.inputs.close()


async def test_a_refused_source_notifies_as_an_unknown_input(cluster: Cluster) -> None:
    cluster.inputs.ask().pool_nodes("p1")
    await asyncio.sleep(0)
    cluster.notified.clear()
    cluster.source("nodepools").reflector.refuse(not_found("nodepools.apps.openyurt.io", ""))
    await asyncio.sleep(0)
    assert cluster.notified == [{unknown(InputKind.POOL)}]


async def test_after_a_cluster_restore_every_input_is_read_again(cluster: Cluster) -> None:
    """Versions went backwards: no event reports the changes, and each earlier read may be wrong."""
    cluster.fill("services", service("web", 500, {"a": "old"}), version=500)
    asked = cluster.inputs.ask()
    assert service_facts(asked) == {"a": "old"}
    cluster.notified.clear()
    cluster.fill("services", service("web", 5, {"a": "new"}), version=6)
    assert service_facts(cluster.inputs.ask()) == {"a": "new"}
    assert asked.reads & set().union(*cluster.notified), "whoever read the old answer is told"


async def test_after_a_cluster_restore_pools_and_slices_come_from_the_new_list(cluster: Cluster) -> None:
    cluster.missing()
    cluster.fill("own node", node(NODE, 500), version=500)
    cluster.fill("nodes", in_pool("n3", "p1", 500), version=500)
    cluster.fill("endpointslices", endpoint_slice("s", ["n1"], 500), version=500)
    assert cluster.inputs.ask().pool_nodes("p1") == frozenset({"n3"})
    assert cluster.inputs.ask().ready_nodes(*WEB, "IPv4") == frozenset({"n1"})
    cluster.fill("nodes", in_pool("n2", "p1", 5), version=6)
    cluster.fill("endpointslices", endpoint_slice("t", ["n2"], 5), version=6)
    assert cluster.inputs.ask().pool_nodes("p1") == frozenset({"n2"})
    assert cluster.inputs.ask().ready_nodes(*WEB, "IPv4") == frozenset({"n2"})


# -- local inputs --------------------------------------------------------------------------------------------------


async def test_a_changed_hub_address_notifies_its_readers(cluster: Cluster) -> None:
    asked = cluster.inputs.ask()
    assert asked.hub.hosts == ("169.254.2.1",)
    cluster.inputs.move_hub(HubAddress(("169.254.2.1",), 10268))
    assert not cluster.notified, "it is the same"
    cluster.inputs.move_hub(HubAddress(("169.254.2.2",), 10268))
    assert set().union(*cluster.notified) <= asked.reads
    assert cluster.inputs.ask().hub.hosts == ("169.254.2.2",)


async def test_an_unhealthy_address_makes_its_node_unhealthy(cluster: Cluster) -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.7"}]
    cluster.inputs.local_health(frozenset({"10.0.0.7"}))
    cluster.fill("nodes", node("n7") | {"status": {"addresses": addresses}}, node("n8"))
    assert cluster.inputs.unhealthy == {"n7", "10.0.0.7"}
    cluster.inputs.local_health(frozenset())
    assert cluster.inputs.unhealthy == frozenset()
