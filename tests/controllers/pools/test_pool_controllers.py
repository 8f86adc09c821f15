"""A pool's attributes, counts and labels are written to its nodes and objects, on the real API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cluster.kinds import Node
from controllers.cluster.node_pools import NodePool
from controllers.pools import ALL, MAX_KEYS, membership_status, pools_of
from kube.json_type import Json
from kube.requests.node_labels import HOSTNAME, bucket_of
from kube.requests.node_pools import POOL_LABEL
from tests.controllers.support.scene import NODES, POOLS, Scene

pytestmark = [pytest.mark.real]

ATTRIBUTES: dict[str, Any] = {
    "labels": {"region": "east"},
    "annotations": {"contact": "ops"},
    "taints": [{"key": "edge", "value": "yes", "effect": "PreferNoSchedule"}],
}


def test_a_node_gets_and_loses_the_attributes_of_its_pool(scene: Scene, manager: object) -> None:
    def tainted(node: Json) -> bool:
        return any(each["key"] == "edge" for each in node["spec"].get("taints", []))

    pool = scene.pool(**ATTRIBUTES)
    node = scene.node(pool, mine="stays")
    scene.admin.patch(f"{NODES}/{node}", {"metadata": {"annotations": {"other": "stays"}}})
    got = scene.sees(NODES, node, lambda obj: obj["metadata"]["labels"]["region"] == "east")
    assert got["metadata"]["annotations"]["contact"] == "ops"
    assert tainted(got)

    scene.relabel(node, None)
    left = scene.sees(NODES, node, lambda obj: "region" not in obj["metadata"]["labels"])
    assert left["metadata"]["labels"]["mine"] == "stays"
    annotations = left["metadata"]["annotations"]
    assert annotations["other"] == "stays"
    assert "contact" not in annotations
    assert "nodepool.openyurt.io/previous-attributes" not in annotations
    assert not tainted(left)


def test_a_pool_with_invalid_attributes_is_reported_and_does_not_affect_the_rest(
    scene: Scene, manager: object
) -> None:
    bad = scene.pool(labels={"not a label key": "x"})
    scene.node(bad)
    good = scene.pool(**ATTRIBUTES)
    node = scene.node(good)
    scene.sees(NODES, node, lambda obj: obj["metadata"]["labels"]["region"] == "east")
    scene.until(lambda: "AttributesRefused" in scene.events(bad))
    assert scene.sees(POOLS, bad, lambda obj: len(obj["status"]["nodes"]) == 1)


def test_a_node_of_an_unknown_pool_is_reported(scene: Scene, manager: object) -> None:
    node = scene.node("nowhere")
    scene.until(lambda: "NodePoolNotFound" in scene.events(node))
    assert "region" not in scene.admin.get(f"{NODES}/{node}")["metadata"]["labels"]


LABELS = "/apis/edgehub.io/v1/nodelabels"


def written(scene: Scene, node: str) -> dict[str, str] | None:
    """Return the published labels of a node; None if no ConfigMap has it."""
    found = scene.admin.request("GET", f"{LABELS}/{bucket_of(node)}")
    groups: list[dict[str, Any]] = found.json().get("groups", []) if found.status == 200 else []
    return next((each["labels"] for each in groups if node in each["nodes"]), None)


def service(name: str, keys: str) -> Json:
    annotations = {"topologyKeys": keys}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"ports": [{"port": 80}]}}


def test_published_labels_follow_the_keys_of_services_and_ignore_statuses(
    scene: Scene, manager: object
) -> None:
    pool = scene.pool()
    node = scene.node(pool)
    path = f"{NODES}/{node}"
    zone = "topology.kubernetes.io/zone"
    scene.admin.patch(path, {"metadata": {"labels": {zone: "z", "rack": "r", HOSTNAME: node}}})
    scene.until(lambda: written(scene, node) == {POOL_LABEL: pool, zone: "z"})
    scene.admin.post(scene.services, service("near", '["rack","*"]'))
    scene.until(lambda: written(scene, node) == {POOL_LABEL: pool, zone: "z", "rack": "r"})

    def version() -> str:
        return str(scene.admin.get(f"{LABELS}/{bucket_of(node)}")["metadata"]["resourceVersion"])

    before = version()
    status = {"conditions": [{"type": "Ready", "status": "False", "reason": "Changed"}]}
    scene.admin.patch(f"{path}/status", {"status": status})
    scene.admin.patch(path, {"metadata": {"labels": {"nobody": "asks"}}})
    other = next(name for number in range(999) if bucket_of(name := f"{node}-{number}") == bucket_of(node))
    assert version() == before
    scene.admin.post(NODES, {"metadata": {"name": other, "labels": {HOSTNAME: "another"}}})
    scene.until(lambda: written(scene, other) == {HOSTNAME: "another"})
    scene.admin.delete(f"{NODES}/{other}")
    scene.until(lambda: written(scene, other) is None)
    scene.admin.delete(f"{scene.services}/near")
    scene.until(lambda: written(scene, node) == {POOL_LABEL: pool, zone: "z"})


def test_labels_are_published_completely_or_not_at_all(scene: Scene, manager: object) -> None:
    """Hubs ignore incomplete labels. With too many keys they read the Nodes themselves."""

    def count() -> int:
        return len(scene.admin.get(LABELS)["items"])

    scene.until(lambda: count() == len(ALL))
    for number in range(MAX_KEYS // 16 + 1):
        keys = ",".join(f'"k{number}-{each}"' for each in range(16))
        scene.admin.post(scene.services, service(f"many-{number}", f"[{keys}]"))
    scene.until(lambda: count() == 0)
    for number in range(MAX_KEYS // 16 + 1):
        scene.admin.delete(f"{scene.services}/many-{number}")
    scene.until(lambda: count() == len(ALL))


@pytest.mark.real
def test_nodes_may_be_created_before_their_pool(scene: Scene, manager: object) -> None:
    name = scene.name("pool")
    node = scene.node(name)
    scene.pool(name)
    assert scene.sees(POOLS, name, lambda obj: obj["status"]["nodes"] == [node])


@pytest.mark.real
def test_a_status_overwritten_by_another_client_is_corrected(scene: Scene, manager: object) -> None:
    pool = scene.pool()
    node = scene.node(pool)
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [node])
    lie = {"nodes": ["unknown"], "readyNodeNum": 7, "unreadyNodeNum": 7}
    scene.admin.patch(f"{POOLS}/{pool}/status", {"status": lie})
    scene.sees(
        POOLS, pool, lambda obj: obj["status"]["nodes"] == [node] and obj["status"]["readyNodeNum"] == 1
    )


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (None, Node("a", pool="p"), {("", "p")}),
        (Node("a", pool="p"), None, {("", "p")}),
        (Node("a", pool="p"), Node("a", pool="q"), {("", "p"), ("", "q")}),
        (Node("a", pool="p"), Node("a", pool="p", ready=True), {("", "p")}),
        (Node("a", pool="p"), Node("a", pool="p", address="10.0.0.1"), set()),
        (None, Node("a"), set()),
    ],
)
def test_only_changes_of_membership_and_readiness_enqueue_a_pool(
    old: Node | None, new: Node | None, keys: object
) -> None:
    assert pools_of(("", "a"), old, new) == keys


def test_the_status_of_an_empty_pool_has_zero_nodes() -> None:
    expected = {"nodes": [], "readyNodeNum": 0, "unreadyNodeNum": 0}
    assert membership_status(NodePool("p"), []) == expected


@given(st.dictionaries(st.text("abc", min_size=1), st.booleans()))
def test_a_written_status_needs_no_second_write(ready: dict[str, bool]) -> None:
    nodes = [Node(name, ready=is_ready) for name, is_ready in ready.items()]
    status = membership_status(NodePool("p"), nodes)
    assert status["nodes"] == sorted(ready)
    assert status["readyNodeNum"] + status["unreadyNodeNum"] == len(ready)
    written = replace(
        NodePool("p"),
        nodes=tuple(status["nodes"]),
        ready=status["readyNodeNum"],
        unready=status["unreadyNodeNum"],
    )
    assert membership_status(written, nodes) == {}
