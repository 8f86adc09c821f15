"""NodePool.status follows nodes, on the real API server."""

from __future__ import annotations

import pytest

from controllers.cluster.nodes import Node
from controllers.pools.node_pool_controller import pools_of
from tests.controllers.support.scene import NODES, POOLS, Scene

pytestmark = [pytest.mark.real]


def test_a_pool_counts_its_nodes(scene: Scene, manager: object) -> None:
    pool, other = scene.pool(), scene.pool()
    first, second = scene.node(pool), scene.node(pool, ready=False)
    seen = scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [first, second])
    assert (seen["status"]["readyNodeNum"], seen["status"]["unreadyNodeNum"]) == (1, 1)

    scene.set_node(second)
    scene.sees(POOLS, pool, lambda obj: obj["status"]["readyNodeNum"] == 2)
    scene.relabel(first, other)
    scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [second])
    scene.sees(POOLS, other, lambda obj: obj["status"]["nodes"] == [first])
    scene.relabel(first, None)
    scene.sees(POOLS, other, lambda obj: obj["status"]["nodes"] == [])
    scene.admin.delete(f"{NODES}/{second}")
    gone = scene.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [])
    assert (gone["status"]["readyNodeNum"], gone["status"]["unreadyNodeNum"]) == (0, 0)


def test_nodes_may_come_before_their_pool(scene: Scene, manager: object) -> None:
    name = scene.name("pool")
    node = scene.node(name)
    scene.pool(name)
    assert scene.sees(POOLS, name, lambda obj: obj["status"]["nodes"] == [node])


def test_a_status_that_somebody_else_wrote_is_put_right(scene: Scene, manager: object) -> None:
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
def test_only_membership_and_readiness_matter(old: Node | None, new: Node | None, keys: object) -> None:
    assert pools_of(("", "a"), old, new) == keys
