"""Writes the names of a pool's nodes and the number of ready ones to NodePool.status."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.cluster.nodes import NODES, Node
from controllers.runtime.controller import Context, Controller, own_key
from kube.json_type import Json
from kube.store.store import Key


class NodePoolController(Controller):
    """Key: a pool. Nodes that change together cause one write."""

    name = "nodepool"
    debounce = 0.1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        status = membership_status(pool, (node for _, node in self._nodes.by_index("pool", pool.name)))
        if status:
            # No other controller writes these fields, so a resourceVersion in the patch would only cause conflicts.
            await self.patch(self._pools, key, {"status": status}, "status")


def pools_of(_key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    """The old and new pool of a node whose membership or readiness changed."""
    seen = [(node.pool, node.ready) if node is not None else None for node in (old, new)]
    if seen[0] == seen[1]:
        return set()
    return {("", node.pool) for node in (old, new) if node is not None and node.pool}


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
