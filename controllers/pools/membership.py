"""Counts the nodes of a pool for NodePool.status. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NodePool
from controllers.cluster.nodes import Node
from kube.json_type import Json


def membership_status(pool: NodePool, nodes: Iterable[Node]) -> Json:
    """The status fields that must change so that they fit the pool's nodes; {} when none must."""
    ready_by_name = {node.name: node.ready for node in nodes}
    names = sorted(ready_by_name)
    ready = sum(ready_by_name.values())
    changed: Json = {}
    # A new pool has no list. An empty list says that a manager has counted the nodes.
    if pool.nodes != tuple(names) or pool.ready < 0:
        changed["nodes"] = names
    if pool.ready != ready:
        changed["readyNodeNum"] = ready
    if pool.unready != len(names) - ready:
        changed["unreadyNodeNum"] = len(names) - ready
    return changed
