"""Elects the hubs that read for their pools, and keeps them elected as nodes come, go and fail (document 003)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime

from controllers.cluster.node_pools import NODEPOOL_TYPE, NODEPOOLS
from controllers.cluster.nodes import NODES, Node
from controllers.leaders.leaders import elect, leader_status
from controllers.runtime.controller import Context, Controller, own_key
from kube.store.store import Key


class HubLeaderController(Controller):
    """Key: a pool. Follows nodes themselves, not their numbers: one that fails as another comes changes no number."""

    name = "hubleader"
    settle = 0.1
    """Seconds: nodes that fail together are seen together, so that none of them is elected in place of another."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        nodes = [node for _, node in self._nodes.find("pool", pool.name)]
        leaders = elect(pool, nodes, random.sample)
        status = leader_status(pool, leaders, datetime.now(UTC))
        if not status:
            return
        # With the version: two managers, or one that has not seen its own last choice, must not choose twice.
        patch = {"metadata": {"resourceVersion": pool.version}, "status": status}
        written = await self._context.api.merge(NODEPOOL_TYPE, "", pool.name, patch, "status")
        if leaders != pool.leaders:
            names = ", ".join(each.node for each in leaders) or "none"
            await self._context.events.normal(pool.about, "LeadersElected", f"leader hubs: {names}")
        await self._pools.catch_up(written)


def pools_of(_key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    """The pools, before and after, of a node of which anything changed that fitness to lead depends on."""
    seen = [
        (node.pool, node.ready, node.address, node.deleting, node.labels) if node is not None else None
        for node in (old, new)
    ]
    if seen[0] == seen[1]:
        return set()
    return {("", node.pool) for node in (old, new) if node is not None and node.pool}
