"""NodePool.status follows nodes: the counts, and on the real API server (random change: `test_manager`)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.cluster.node_pools import NodePool
from controllers.cluster.nodes import Node
from controllers.pools.node_pool_controller import membership_status, pools_of
from tests.controllers.support.scene import POOLS, Scene


@pytest.mark.real
def test_nodes_may_come_before_their_pool(scene: Scene, manager: object) -> None:
    name = scene.name("pool")
    node = scene.node(name)
    scene.pool(name)
    assert scene.sees(POOLS, name, lambda obj: obj["status"]["nodes"] == [node])


@pytest.mark.real
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


def test_a_new_pool_says_that_it_is_empty() -> None:
    expected = {"nodes": [], "readyNodeNum": 0, "unreadyNodeNum": 0}
    assert membership_status(NodePool("p"), []) == expected


@given(st.dictionaries(st.text("abc", min_size=1), st.booleans()))
def test_once_written_it_is_right(ready: dict[str, bool]) -> None:
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
