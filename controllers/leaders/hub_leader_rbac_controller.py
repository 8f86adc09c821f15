"""Grants hubs the right to read the pool scope and their pools' ConfigMaps, by one ClusterRole and one Role."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.leaders.pool_scope import (
    LEADER_HUBS_ROLE,
    POOL_SCOPE_ROLE,
    differs,
    leader_hubs_role,
    pool_scope_role,
)
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import Informer, WatchedResource, without_managed_fields
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

GROUP = "rbac.authorization.k8s.io"
CLUSTER_ROLES = ResourceType(GROUP, "v1", "clusterroles")
ROLES = ResourceType(GROUP, "v1", "roles")


class HubLeaderRbacController(Controller):
    """Keys: the two roles."""

    name = "hubleaderrbac"
    workers = 1
    debounce = 0.5
    """Seconds. Each change of a role makes every API server rebuild its rules."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._keys = [("", POOL_SCOPE_ROLE), (self._namespace, LEADER_HUBS_ROLE)]
        self._pools = self.watch(NODEPOOLS, self._concerned)
        self._cluster_roles = self.watch(_named(CLUSTER_ROLES, "", POOL_SCOPE_ROLE), self._all_keys)
        self._roles = self.watch(_named(ROLES, self._namespace, LEADER_HUBS_ROLE), self._all_keys)

    async def reconcile(self, key: Key) -> None:
        pools = [pool for _, pool in self._pools.items()]
        if key[1] == POOL_SCOPE_ROLE:
            await self._keep(CLUSTER_ROLES, self._cluster_roles, key, pool_scope_role(pools))
        else:
            await self._keep(ROLES, self._roles, key, leader_hubs_role(pools, self._namespace))

    async def _keep(self, resource: ResourceType, informer: Informer[Json], key: Key, intended: Json) -> None:
        live = informer.get(key)
        if live is None and not intended["rules"]:
            return  # no rule is wanted and no role exists
        if differs(live, intended):
            await informer.wait_until_observed(await self._context.api.apply(resource, intended))

    def _concerned(self, _key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        if old is not None and new is not None and old.pool_scope == new.pool_scope:
            return []
        return self._keys

    def _all_keys(self, _key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
        return self._keys if old != new else []


def _named(resource: ResourceType, namespace: str, name: str) -> WatchedResource[Json]:
    """A single object, selected by its name: RBAC can then limit the manager's list and watch to this object."""
    return WatchedResource(
        resource, without_managed_fields, namespace=namespace, field_selector=f"metadata.name={name}"
    )
