"""Which nodes a pool has: the part of a NodePool's status that counts them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import Pool
from controllers.cluster.nodes import Node
from kube.json_type import Json


def membership_status(pool: Pool, nodes: Iterable[Node]) -> Json:
    """The fields of the status that differ from what the nodes of the pool say; {} when none does."""
    ready_by_name = {node.name: node.ready for node in nodes}
    names = sorted(ready_by_name)
    ready = sum(ready_by_name.values())
    changed: Json = {}
    # A new pool has no list yet; an empty one says that it has been counted.
    if pool.nodes != tuple(names) or pool.ready < 0:
        changed["nodes"] = names
    if pool.ready != ready:
        changed["readyNodeNum"] = ready
    if pool.unready != len(names) - ready:
        changed["unreadyNodeNum"] = len(names) - ready
    return changed
