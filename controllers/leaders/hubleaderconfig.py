"""Publishes to hubs, in a ConfigMap for each pool, who leads it and what its nodes share."""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.node_pools import NODEPOOLS
from controllers.leaders.pool_scope import CONFIG_LABEL, config_name, differs, leader_config
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import ResourceKind, without_managed_fields
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

CONFIG_MAPS = ResourceType("", "v1", "configmaps")


class HubLeaderConfigController(Controller):
    """Key: a pool. The ConfigMap of a deleted pool is garbage-collected."""

    name = "hubleaderconfig"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._namespace = context.settings.namespace
        self._pools = self.watch(NODEPOOLS, own_key)
        self._configs = self.watch(config_maps(self._namespace), pool_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        intended = leader_config(pool, self._namespace)
        if differs(self._configs.get((self._namespace, config_name(pool.name))), intended):
            await self._configs.catch_up(await self._context.api.apply(CONFIG_MAPS, intended))


def config_maps(namespace: str) -> ResourceKind[Json]:
    """Those that hubs select; the many others of the namespace are none of the manager's business."""
    return ResourceKind(CONFIG_MAPS, without_managed_fields, namespace=namespace, label_selector=CONFIG_LABEL)


def pool_of(key: Key, old: Json | None, new: Json | None) -> Iterable[Key]:
    """The pool that a ConfigMap belongs to, by its name."""
    prefix = config_name("")
    return [("", key[1].removeprefix(prefix))] if key[1].startswith(prefix) and old != new else []
