"""Lets hubs read what their pools share, and their pools' ConfigMaps: keeps one ClusterRole and one Role."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS, Pool
from controllers.leaders.pool_scope import (
    LEADER_HUBS_ROLE,
    POOL_SCOPE_ROLE,
    differs,
    leader_hubs_role,
    pool_scope_role,
)
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import Informer, ResourceKind, without_managed_fields
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
    settle = 0.5
    """Seconds: each change of a role makes every API server rebuild its rules."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._keys = [("", POOL_SCOPE_ROLE), (self._namespace, LEADER_HUBS_ROLE)]
        self._pools = self.watch(NODEPOOLS, self._concerned)
        self._cluster_roles = self.watch(_named(CLUSTER_ROLES, "", POOL_SCOPE_ROLE), self._all_keys)
        self._roles = self.watch(_named(ROLES, self._namespace, LEADER_HUBS_ROLE), self._all_keys)

    async def reconcile(self, key: Key) -> None:
        pools = [pool for _, pool in self._pools.each()]
        if key[1] == POOL_SCOPE_ROLE:
            await self._keep(CLUSTER_ROLES, self._cluster_roles, key, pool_scope_role(pools))
        else:
            await self._keep(ROLES, self._roles, key, leader_hubs_role(pools, self._namespace))

    async def _keep(self, resource: ResourceType, informer: Informer[Json], key: Key, intended: Json) -> None:
        live = informer.get(key)
        if live is None and not intended["rules"]:
            return  # nothing to grant, and nothing granted
        if differs(live, intended):
            await informer.catch_up(await self._context.api.apply(resource, intended))

    def _concerned(self, _key: Key, old: Pool | None, new: Pool | None) -> Iterable[Key]:
        if old is not None and new is not None and old.shared == new.shared:
            return []
        return self._keys

    def _all_keys(self, _key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
        return self._keys if old != new else []


def _named(resource: ResourceType, namespace: str, name: str) -> ResourceKind[Json]:
    """One object: RBAC allows to list and watch one by its name, and so nothing else is asked for."""
    return ResourceKind(
        resource, without_managed_fields, namespace=namespace, field_selector=f"metadata.name={name}"
    )
