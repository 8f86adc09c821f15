"""Puts the labels, annotations and taints of a pool on its nodes, and removes them from nodes that leave."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.cluster.nodes import NODES, Node
from controllers.pools.attributes import node_patch, wanted_attributes
from controllers.runtime.controller import REFUSED, Context, Controller, own_key
from controllers.runtime.events import ObjectReference
from kube.errors import StatusError
from kube.requests.node_pools import POOL_LABEL
from kube.store.store import Key


class NodeAttributesController(Controller):
    """Key: a node."""

    name = "nodeattributes"
    workers = 4

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, own_key)
        self._pools = self.watch(NODEPOOLS, self._members, enqueue_initial=False)

    async def reconcile(self, key: Key) -> None:
        node = self._nodes.get(key)
        if node is None or node.deleting:
            return
        pool = self._pools.get(("", node.pool)) if node.pool else None
        if node.pool and pool is None:
            message = f"label {POOL_LABEL} names the node pool {node.pool}, which does not exist"
            await self._context.events.warning(reference(node), "NodePoolNotFound", message)
        patch = node_patch(node, wanted_attributes(pool))
        if not patch:
            return
        try:
            await self.patch(self._nodes, key, patch)
        except StatusError as error:
            if error.code in REFUSED and pool is not None:
                message = f"node {node.name} does not take the pool's attributes: {error}"
                await self._context.events.warning(pool.reference, "AttributesRefused", message)
            raise

    def _members(self, _key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        if old is not None and new is not None and wanted_attributes(old) == wanted_attributes(new):
            return []
        pool = new or old
        return [key for key, _ in self._nodes.by_index("pool", pool.name)] if pool is not None else []


def reference(node: Node) -> ObjectReference:
    # In Events about a node the uid is the node's name: kubelet writes them so, and `kubectl describe node` expects it.
    return ObjectReference("v1", "Node", "", node.name, node.name)
