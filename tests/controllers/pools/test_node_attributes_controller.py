"""A pool's labels, annotations and taints come to its nodes and go again, on the real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_type import Json
from tests.controllers.support.scene import NODES, POOLS, Scene

pytestmark = [pytest.mark.real]

ATTRIBUTES: dict[str, Any] = {
    "labels": {"region": "east"},
    "annotations": {"contact": "ops"},
    "taints": [{"key": "edge", "value": "yes", "effect": "PreferNoSchedule"}],
}


def tainted(node: Json) -> bool:
    return any(each["key"] == "edge" for each in node["spec"].get("taints", []))


def test_a_node_gets_and_loses_them_with_its_pool(scene: Scene, manager: object) -> None:
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


def test_a_pool_that_nodes_refuse_says_so_and_harms_nobody(scene: Scene, manager: object) -> None:
    bad = scene.pool(labels={"not a label key": "x"})
    scene.node(bad)
    good = scene.pool(**ATTRIBUTES)
    node = scene.node(good)
    scene.sees(NODES, node, lambda obj: obj["metadata"]["labels"]["region"] == "east")
    scene.until(lambda: "AttributesRefused" in scene.events(bad))
    assert scene.sees(POOLS, bad, lambda obj: len(obj["status"]["nodes"]) == 1)


def test_a_node_of_no_known_pool_is_told(scene: Scene, manager: object) -> None:
    node = scene.node("nowhere")
    scene.until(lambda: "NodePoolNotFound" in scene.events(node))
    assert "region" not in scene.admin.get(f"{NODES}/{node}")["metadata"]["labels"]
