"""A pool's status, counted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controllers.cluster.node_pools import NodePool
from controllers.cluster.nodes import Node
from controllers.pools.membership import membership_status


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
