"""Elects the leader hubs of each pool, and replaces a leader whose node fails or leaves (OpenYurt)."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime

from controllers.cluster.node_pools import NODEPOOLS
from controllers.cluster.nodes import NODES, Node
from controllers.leaders.leader_choice import elect, leader_status
from controllers.runtime.controller import Context, Controller, own_key
from kube.peers import PEER_ANNOTATION
from kube.store.store import Key


class HubLeaderController(Controller):
    """Key: a pool. The controller watches nodes instead of the counts in the status, because no count changes when one
    node fails while another becomes ready."""

    name = "hubleader"
    debounce = 0.1
    """Seconds. Nodes that fail together are handled together, so that no failed node replaces another as leader."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        nodes = [node for _, node in self._nodes.by_index("pool", pool.name)]
        leaders = elect(pool, nodes, random.sample)
        status = leader_status(pool, leaders, datetime.now(UTC))
        if not status:
            return
        # The resourceVersion prevents a second election, by another manager or by one that has not seen its own write.
        patch = {"metadata": {"resourceVersion": pool.version}, "status": status}
        await self.patch(self._pools, key, patch, "status")
        if leaders != pool.leaders:
            names = ", ".join(leader.node for leader in leaders) or "none"
            await self._context.events.normal(pool.reference, "LeadersElected", f"leader hubs: {names}")


def pools_of(_key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    """The old and new pool of a node whose eligibility to lead may have changed."""
    if _eligibility(old) == _eligibility(new):
        return set()
    return {("", node.pool) for node in (old, new) if node is not None and node.pool}


def _eligibility(node: Node | None) -> object:
    """What of a node says whether it may lead, and which pool."""
    if node is None:
        return None
    announced = node.annotations.get(PEER_ANNOTATION)
    return node.pool, node.ready, node.address, node.deleting, node.labels, announced
