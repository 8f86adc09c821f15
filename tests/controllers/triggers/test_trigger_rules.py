"""The rules of triggers as tables."""

from __future__ import annotations

import pytest

from controllers.cluster.node_pools import NodePool
from controllers.cluster.services import Service
from controllers.triggers.trigger_rules import affected_nodes, topology_changed


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (Service("n", "s"), Service("n", "s", topology="x"), True),
        (Service("n", "s", topology="x"), Service("n", "s", topology="y"), True),
        (Service("n", "s", topology="x"), Service("n", "s"), True),
        (Service("n", "s", topology=""), Service("n", "s"), True),
        (Service("n", "s", topology="x", version="1"), Service("n", "s", topology="x", version="2"), False),
        (None, Service("n", "s", topology="x"), False),
        (Service("n", "s", topology="x"), None, False),
    ],
)
def test_a_topology_changed(old: Service | None, new: Service | None, changed: bool) -> None:
    assert topology_changed(old, new) is changed


@pytest.mark.parametrize(
    ("old", "new", "nodes"),
    [
        (NodePool("p", nodes=("a", "b")), None, {"a", "b"}),
        (NodePool("p", nodes=("a", "b")), NodePool("p", nodes=("a",)), {"a", "b"}),
        (NodePool("p", nodes=("a",)), NodePool("p", nodes=("a", "b")), {"a", "b"}),
        (NodePool("p", nodes=("a",)), NodePool("p", nodes=("b",)), {"a", "b"}),
        (None, NodePool("p", nodes=("a",)), {"a"}),
        (NodePool("p"), NodePool("p", nodes=("a",), ready=1), {"a"}),
        (NodePool("p"), NodePool("p", ready=0), set()),
        (NodePool("p", nodes=("a", "b")), NodePool("p", nodes=("b", "a")), set()),
        (NodePool("p", nodes=("a",), ready=1), NodePool("p", nodes=("a",), ready=0), set()),
        (NodePool("p"), None, set()),
    ],
)
def test_the_nodes_of_a_change(old: NodePool | None, new: NodePool | None, nodes: set[str]) -> None:
    assert affected_nodes(old, new) == nodes
