"""Publishes the leaders and the pool scope of each pool to its hubs, in one ConfigMap a pool."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS
from controllers.cluster.nodes import NODES, Node
from controllers.leaders.leader_choice import serving_hubs
from controllers.leaders.pool_scope import MANAGED_BY, MANAGER, config_name, differs, leader_config
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import WatchedResource, without_managed_fields
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

CONFIG_MAPS = ResourceType("", "v1", "configmaps")


class HubLeaderConfigController(Controller):
    """Key: a pool. Garbage collection deletes the ConfigMap of a deleted pool."""

    name = "hubleaderconfig"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of_hub)
        self._configs = self.watch(config_maps(self._namespace), pool_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        nodes = (node for _, node in self._nodes.by_index("pool", pool.name))
        intended = leader_config(pool, serving_hubs(nodes), self._namespace)
        if differs(self._configs.get((self._namespace, config_name(pool.name))), intended):
            await self._configs.wait_until_observed(await self._context.api.apply(CONFIG_MAPS, intended))


def pools_of_hub(_key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    """The old and new pool of a node whose hub comes, goes or moves."""
    was, now = ((node.pool, serving_hubs([node])) if node is not None else ("", []) for node in (old, new))
    return {("", pool) for pool, _ in (was, now) if pool} if was != now else set()


def config_maps(namespace: str) -> WatchedResource[Json]:
    """The ConfigMaps that a manager wrote, not the others of the namespace."""
    return WatchedResource(
        CONFIG_MAPS, without_managed_fields, namespace=namespace, label_selector=f"{MANAGED_BY}={MANAGER}"
    )


def pool_of(key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
    """The pool whose ConfigMap has this name."""
    prefix = config_name("")
    return [("", key[1].removeprefix(prefix))] if key[1].startswith(prefix) and old != new else []
