"""The labels of other nodes: from what the manager writes where it writes all of it, else from each Node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import pytest

from addons.inputs.input_sources import InputKind, unknown
from kube.errors import StatusError, forbidden, not_found
from kube.json_type import Json
from kube.requests.node_labels import BUCKETS, HOSTNAME, bucket_of, read_labels, written_labels
from kube.requests.node_pools import POOL_LABEL
from tests.addons.inputs.test_filter_inputs import BUCKETS_NAME, NODE, Cluster
from tests.addons.support.samples import node

ZONES = {
    NODE: {"zone": "stale"},
    "n2": {"zone": "a", POOL_LABEL: "p1"},
    "n3": {"zone": "b", POOL_LABEL: "p1"},
}


def bucket(name: str, nodes: Mapping[str, Mapping[str, str]], version: int) -> Json:
    groups = [
        {"labels": dict(labels), "nodes": [each]} for each, labels in nodes.items() if bucket_of(each) == name
    ]
    metadata = {"name": name, "resourceVersion": str(version)}
    return {"apiVersion": "edgehub.io/v1", "kind": "NodeLabels", "metadata": metadata, "groups": groups}


def buckets(nodes: Mapping[str, Mapping[str, str]] = ZONES, version: int = 1) -> Iterable[Json]:
    return (bucket(f"{number:02}", nodes, version) for number in range(BUCKETS))


@pytest.fixture
async def cluster() -> Cluster:
    made = Cluster()
    made.source(BUCKETS_NAME).reflector.refusal = None
    return made


def zone(cluster: Cluster, name: str) -> tuple[bool, str | None]:
    """Whether an answer is there, and which."""
    asked = cluster.inputs.ask()
    labels = asked.node_labels(name)
    return not asked.pending, labels.get("zone") if labels is not None else None


async def test_what_the_manager_writes_is_read_and_no_node(cluster: Cluster) -> None:
    assert zone(cluster, "n2") == (False, None)
    cluster.fill(BUCKETS_NAME, *buckets())
    cluster.fill("own node", node(NODE, 1, zone="c"))
    assert [zone(cluster, name) for name in ("n2", "n3", "n4", NODE)] == [
        (True, "a"),
        (True, "b"),
        (True, None),
        (True, "c"),
    ]
    assert "nodes" not in cluster.list_watches
    moved = {**ZONES, "n3": {"zone": "a", POOL_LABEL: "p2"}, "n4": {}}
    told = [cluster.apply(BUCKETS_NAME, "MODIFIED", each) for each in buckets(moved, 20)]
    touched = set().union(*told)
    assert {
        (InputKind.NODE, "n3", "zone"),
        (InputKind.NODE, "n3", POOL_LABEL),
        (InputKind.NODE, "n4"),
    } <= touched
    assert not any("n2" in str(key) or NODE in str(key) for key in touched), "what is as it was is not told"
    assert zone(cluster, "n3") == (True, "a")
    cluster.inputs.close()


async def test_without_all_of_it_each_node_is_read(cluster: Cluster) -> None:
    """A manager that has not written everything yet, or never does."""
    *most, last = buckets()
    cluster.fill(BUCKETS_NAME, *most)
    cluster.fill("nodes", node("n2", 2, zone="a"))
    assert zone(cluster, "n2") == (True, "a")
    assert cluster.apply(BUCKETS_NAME, "ADDED", last) == {unknown(InputKind.NODE_LABELS)}
    assert zone(cluster, "n3") == (True, "b")
    assert cluster.source("nodes").users == 0, "nobody reads each node any more"
    assert cluster.apply(BUCKETS_NAME, "DELETED", last) == {unknown(InputKind.NODE_LABELS)}
    assert zone(cluster, "n2") == (True, "a")
    assert zone(cluster, "n3") == (True, None)
    assert cluster.source("nodes").users == 1
    cluster.inputs.close()


@pytest.mark.parametrize("refusal", [not_found("nodelabels", ""), forbidden("no")])
async def test_where_the_cloud_refuses_it_each_node_is_read(cluster: Cluster, refusal: StatusError) -> None:
    cluster.fill("nodes", node("n2", 2, zone="a"))
    assert zone(cluster, "n2") == (False, None)
    cluster.told.clear()
    cluster.source(BUCKETS_NAME).reflector.refuse(refusal)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert unknown(InputKind.NODE_LABELS) in set().union(*cluster.told), "who waits asks again"
    assert zone(cluster, "n2") == (True, "a")
    cluster.inputs.close()


async def test_a_pool_by_label_has_the_nodes_that_the_manager_writes(cluster: Cluster) -> None:
    cluster.missing()
    cluster.fill("own node", node(NODE, 1))
    cluster.fill(BUCKETS_NAME, *buckets())
    assert cluster.inputs.ask().pool_nodes("p1") == {"n2", "n3"}
    cluster.inputs.close()


@pytest.mark.parametrize("labels", [{HOSTNAME: "n1", "a": "1"}, {HOSTNAME: "other", "a": "1"}, {"a": "1"}])
def test_labels_are_read_as_they_were_written(labels: dict[str, str]) -> None:
    assert read_labels("n1", written_labels("n1", labels, ["a", "b", HOSTNAME])) == labels
