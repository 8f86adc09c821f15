"""Grants hubs the right to read their pools' ConfigMaps, by one Role that names each of them."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.leaders.pool_scope import LEADER_HUBS_ROLE, differs, leader_hubs_role
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import one_object, without_managed_fields
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

ROLES = ResourceType("rbac.authorization.k8s.io", "v1", "roles")


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
            await self._roles.wait_until_observed(await self._context.api.apply(ROLES, intended))

    def _when_pools_come_or_go(self, _key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        return [self._key] if old is None or new is None else []

    def _when_the_role_changes(self, _key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
        return [self._key] if old != new else []
