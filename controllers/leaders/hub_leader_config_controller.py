"""Publishes the leaders and the pool scope of each pool to its hubs, in one ConfigMap a pool, and grants hubs the right
to read these, by one Role that names each of them."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.cluster.nodes import NODES, Node
from controllers.leaders.leader_choice import serving_hubs
from controllers.leaders.pool_scope import (
    LEADER_HUBS_ROLE,
    MANAGED_BY,
    MANAGER,
    config_name,
    differs,
    leader_config,
    leader_hubs_role,
)
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import WatchedResource, one_object, without_managed_fields
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

CONFIG_MAPS = ResourceType("", "v1", "configmaps")
ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "roles")


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
            await self.apply(self._configs, intended)


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


class HubLeaderRbacController(Controller):
    """Key: the Role. A manifest, not this controller, grants hubs the right to read what pools share."""

    name = "hubleaderrbac"
    workers = 1
    debounce = 0.5
    """Seconds. Each change of a role makes every API server rebuild its rules."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._key = (self._namespace, LEADER_HUBS_ROLE)
        self._pools = self.watch(NODEPOOLS, self._when_pools_come_or_go)
        self._roles = self.watch(
            one_object(ROLES, *self._key, without_managed_fields), self._when_the_role_changes
        )

    async def reconcile(self, key: Key) -> None:
        live = self._roles.get(key)
        intended = leader_hubs_role((pool for _, pool in self._pools.items()), self._namespace)
        if live is None and not intended["rules"]:
            return  # no rule is wanted and no role exists
        if differs(live, intended):
            await self.apply(self._roles, intended)

    def _when_pools_come_or_go(self, _key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        return [self._key] if old is None or new is None else []

    def _when_the_role_changes(self, _key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
        return [self._key] if old != new else []
