"""Inputs of filters: the sources that provide them, and the record of each request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from addons.inputs.derived import Derived
from addons.inputs.filter_inputs import MANY_LABELS, of_labels
from addons.inputs.input_sources import InputKind, list_watches_of, one_config_map, unknown
from addons.inputs.recorded_inputs import RecordedLabels, RecordedMembers
from addons.views.source import Source
from kube.errors import forbidden, not_found
from kube.reflector.list_watch import ListWatch
from kube.store.projection import InputKey
from kube.store.store import Change, Item
from kube.wire.encoding import Encoding
from tests.addons.inputs.test_filter_inputs import NODE, Cluster, in_pool
from tests.addons.support.samples import fill, node_pool
from tests.kube.support.toys import Toy, filled


def test_a_read_of_a_label_is_recorded_by_its_key() -> None:
    reads: set[InputKey] = set()
    labels = RecordedLabels("n2", {"zone": "a"}, reads)
    assert not reads
    assert (labels.get("zone"), labels.get("rack"), "row" in labels, labels["zone"]) == (
        "a",
        None,
        False,
        "a",
    )
    assert reads == {(InputKind.NODE, "n2", key) for key in ("zone", "rack", "row")}
    assert dict(labels) == {"zone": "a"}
    assert (InputKind.NODE, "n2", None) in reads, "any label counts for who goes through them"


def test_a_lookup_of_a_pool_member_is_recorded_by_its_node() -> None:
    reads: set[InputKey] = set()
    members = RecordedMembers("p1", frozenset({"n1"}), "", reads)
    assert ("n1" in members, "n2" in members) == (True, False)
    assert reads == {(InputKind.POOL, "p1", "n1"), (InputKind.POOL, "p1", "n2")}
    assert set(members) == {"n1"}
    assert (InputKind.POOL, "p1", None) in reads, "any node counts for who goes through them"


def test_a_change_of_very_many_labels_notifies_readers_of_any_label() -> None:
    """A kubelet may write a hundred thousand labels; each was once looked up among the recorded reads."""
    many = {f"k{number}": "" for number in range(MANY_LABELS)}
    touched = [of_labels("n2", many, many | more) for more in ({}, {"zone": "a"})]
    asked: set[InputKey] = {(InputKind.NODE, "n2")}
    assert touched == [set(), asked]


def item(version: int) -> Item:
    (made,) = filled(version, Toy("a", version=version))
    return made


class Reader:
    """Read the version of an object, and count the reads."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, found: Item) -> int:
        self.reads += 1
        return found.version


def test_an_objects_derived_value_is_computed_once() -> None:
    reader, found = Reader(), item(1)
    derived = Derived(reader)
    assert [derived.of(found), derived.of(found), reader.reads] == [1, 1, 1]
    assert derived.of(item(2)) == 2


@pytest.mark.parametrize("asked_first", [False, True])
def test_a_change_is_notified_with_the_former_and_new_value(asked_first: bool) -> None:
    """This also holds if an earlier listener has already read the new object."""
    old, new = item(1), item(2)
    derived = Derived(Reader())
    derived.of(old)
    if asked_first:
        derived.of(new)
    assert derived.follow(Change(2, new.key, old, new)) == (1, 2)
    assert derived.of(new) == 2


def test_a_change_without_dependent_views_reads_nothing() -> None:
    reader, old, new = Reader(), item(1), item(2)
    derived = Derived(reader)
    assert derived.follow(Change(2, new.key, old, new)) is None
    assert reader.reads == 0


def test_a_created_or_deleted_object_has_no_former_or_new_value() -> None:
    reader, found = Reader(), item(1)
    derived = Derived(reader)
    derived.of(found)
    assert derived.follow(Change(2, found.key, found, None)) is None
    derived.of(found)
    assert derived.follow(Change(1, found.key, None, found)) is None
    derived.of(found)
    derived.clear()
    assert derived.follow(Change(1, found.key, found, found)) is None


def test_local_health_has_no_list_watch() -> None:
    with pytest.raises(ValueError, match="not read from the cloud"):
        list_watches_of(InputKind.HEALTH, "n1")


class Served(Cluster):
    """A cluster with a source of NodePools for each API version that the inputs opened."""

    def __init__(self) -> None:
        self.refusing = set[str]()
        super().__init__()
        self.sources.clear()

    def _open(self, list_watch: ListWatch) -> Source:
        version = list_watch.type.version
        opened = self.source(version)
        if version in self.refusing:
            # The copy on disk recorded this version.
            opened.reflector.refusal = not_found("nodepools", "")
        return cast(Source, opened)

    async def lose(self, version: str) -> None:
        self.sources[version].reflector.refuse(not_found("nodepools", ""))
        await asyncio.sleep(0)

    def members(self) -> tuple[bool, list[str] | None]:
        """Return whether the nodes of the pool are known, and their names."""
        asked = self.inputs.ask()
        nodes = asked.pool_nodes("p1")
        return not asked.pending, None if nodes is None else sorted(nodes)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    made = Served()
    yield made
    made.inputs.close()


async def test_pools_are_read_in_the_best_version_that_the_cloud_serves(served: Served) -> None:
    assert served.members() == (False, None)
    assert list(served.sources) == ["v1beta2"], "nothing further is asked before the cloud has answered"
    await served.lose("v1beta2")
    assert list(served.sources) == ["v1beta2", "v1beta1"]
    assert served.members() == (False, None), "not by labels: the next version may be there"
    fill(served.sources["v1beta1"].store, [node_pool("p1", ["n1"], 1)], 1, kind="NodePool")
    assert served.members() == (True, ["n1"])

    # After an upgrade of the cloud the best version is used, and filters that read the pool are notified.
    await asyncio.sleep(0)
    served.notified.clear()
    fill(served.sources["v1beta2"].store, [node_pool("p1", ["n1", "n2"], 2)], 2, kind="NodePool")
    served.sources["v1beta2"].reflector.refuse(None)
    await asyncio.sleep(0)
    assert {unknown(InputKind.POOL)} in served.notified
    assert served.members() == (True, ["n1", "n2"])
    assert [each.users for each in served.sources.values()] == [1, 0], "the worse version is let go"
    served.notified.clear()
    fill(served.sources["v1beta1"].store, [node_pool("p1", [], 3)], 3, kind="NodePool")
    assert served.notified == [], "and no longer listened to"


async def test_the_end_of_a_watch_checks_for_better_api_versions(served: Served) -> None:
    """kube-apiserver ends a kind's watches when its versions change; the hub checks for an absent version only each
    five minutes."""
    served.members()
    await served.lose("v1beta2")
    await served.lose("v1beta1")
    assert list(served.sources) == ["v1beta2", "v1beta1", "v1alpha1"]
    before = [each.reflector.retried for each in served.sources.values()]
    served.sources["v1alpha1"].reflector.changed.notify()
    await asyncio.sleep(0)
    after = [each.reflector.retried for each in served.sources.values()]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 0]


async def test_a_kind_that_is_served_in_no_version_is_missing(served: Served) -> None:
    served.members()
    for version in ("v1beta2", "v1beta1", "v1alpha1"):
        assert not served.inputs.input(InputKind.POOL).is_missing
        await served.lose(version)
    assert served.inputs.input(InputKind.POOL).is_missing
    served.sources["v1beta1"].reflector.refuse(None)
    await asyncio.sleep(0)
    fill(served.sources["v1beta1"].store, [node_pool("p1", ["n1"], 1)], 1, kind="NodePool")
    assert served.members() == (True, ["n1"])


async def test_the_stored_api_version_selects_the_copy_on_disk(served: Served) -> None:
    served.refusing = {"v1beta2", "v1beta1"}
    served.members()
    fill(served.sources["v1alpha1"].store, [node_pool("p1", ["n1"], 1)], 1, kind="NodePool")
    assert served.members() == (True, ["n1"])


async def test_a_missing_permission_does_not_change_the_version_of_the_api(served: Served) -> None:
    served.members()
    served.sources["v1beta2"].reflector.refuse(forbidden("nodepools"))
    await asyncio.sleep(0)
    assert list(served.sources) == ["v1beta2"]


def test_the_label_source_lists_one_config_map_only() -> None:
    wanted = one_config_map("kube-system", "leader-hub-harbour")
    assert wanted.path == "/api/v1/namespaces/kube-system/configmaps"
    assert wanted.query == {"fieldSelector": "metadata.name=leader-hub-harbour"}
    assert wanted.encoding is Encoding.JSON


async def test_no_cloud_lacks_a_kind_of_kubernetes() -> None:
    """A gateway that misroutes answers 404 to the Nodes: no pool has lost its members by that."""
    cluster = Cluster()
    cluster.missing()
    cluster.source("nodes").reflector.refusal = not_found("nodes", "")
    cluster.fill("own node", in_pool(NODE, "p1"))
    asked = cluster.inputs.ask()
    assert (asked.pool_nodes("p1"), asked.pending) == (None, True)
    cluster.source("nodes").is_lost = True
    asked = cluster.inputs.ask()
    assert (asked.pool_nodes("p1"), asked.pending) == (None, False), "as at a first start without a cloud"
    cluster.inputs.close()
