"""What the two trigger controllers share: they touch an annotation, so that hubs which follow nothing else look again.

A change is kept as a demand, "touched no earlier than then", until an object shows that it is met. A standby keeps
the same demands, so that a change which the leader saw and did not get to is not lost with it.

While no manager runs, NodePool.status keeps the nodes that hubs know: the next manager counts anew, and what differs
is a change like any other. For the rest nothing is recorded, and it is lost then: a Service's topology annotation
that changed, a pool that was deleted, and what was still queued when the last manager ended. A record would cost a
write for each Service or slice, and so the traffic that triggers are to save.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Set
from datetime import UTC, datetime

from controllers.cluster.node_pools import NODEPOOLS, Pool
from controllers.cluster.services import SERVICES, Service
from controllers.runtime.controller import Context, Controller
from controllers.runtime.informer import ResourceKind
from controllers.triggers.annotations import affected_nodes, topology_changed
from controllers.triggers.backends import Backends
from kube.concurrency.workqueue import Bucket
from kube.errors import StatusError
from kube.store.store import Key

RATE = 200.0
"""Objects of a kind touched a second: 1,000 slices of one event are spread over 5 s. Each write goes to every node that
watches them, so slices of 1 KB are 200 KB/s on each link. A slower rate would keep a first start that counts a cluster
with 2,500 slices in pools from being steady within 20 s."""
BURST = 10
"""Objects touched at once before that."""
SKEW = 60.0
"""Seconds by which the clocks of two managers may differ."""


class UpdateTrigger(Controller):
    """Key: an Endpoints or EndpointSlice object."""

    workers = 4

    def __init__(self, context: Context, kind: ResourceKind[Backends]) -> None:
        super().__init__(context)
        self._kind = kind
        self._annotation = context.settings.trigger_annotation
        self._demands: dict[Key, float] = {}
        # What changed before all kinds were listed: whom it concerns is known only then.
        self._early_services: set[Key] = set()
        self._early_nodes: set[str] = set()
        self._pace = Bucket(RATE, BURST)
        self._targets = self.follow(kind, self._target_changed)
        self._services = self.follow(SERVICES, self._service_changed)
        self.follow(NODEPOOLS, self._pool_changed)

    async def run(self) -> None:
        for informer in self.followed:
            await informer.synced.wait()
        self._demand_for(set(), set())
        await super().run()

    async def reconcile(self, key: Key) -> None:
        if not self._is_due(key):
            return
        await asyncio.sleep(self._pace.reserve())
        if not self._is_due(key):
            return
        now = datetime.now(UTC)
        patch = {"metadata": {"annotations": {self._annotation: trigger_value(now)}}}
        try:
            await self._context.api.merge(self._kind.type, *key, patch)
        except StatusError as error:
            if error.code != 404:
                raise
        if self._demands.get(key, 0.0) <= now.timestamp():
            self._demands.pop(key, None)

    def _is_due(self, key: Key) -> bool:
        demand, target = self._demands.get(key), self._targets.get(key)
        if demand is None or target is None or target.deleting or is_met(demand, target.triggered):
            self._demands.pop(key, None)
            return False
        return True

    def _target_changed(self, key: Key, _old: Backends | None, _new: Backends | None, _first: bool) -> None:
        if key in self._demands:
            self._is_due(key)

    def _service_changed(self, key: Key, old: Service | None, new: Service | None, _first: bool) -> None:
        if topology_changed(old, new):
            self._demand_for({key}, set())

    def _pool_changed(self, _key: Key, old: Pool | None, new: Pool | None, first: bool) -> None:
        if not first:
            self._demand_for(set(), affected_nodes(old, new))

    def _demand_for(self, services: Set[Key], nodes: Set[str]) -> None:
        """Of all targets of these services, and of those with an endpoint on these nodes whose Service is in a pool."""
        self._early_services |= services
        self._early_nodes |= nodes
        if not self.synced:
            return
        for key in self._early_services:
            for target, _ in self._targets.find("service", "/".join(key)):
                self._demand(target)
        for node in self._early_nodes:
            for target, backends in self._targets.find("node", node):
                service = self._services.get(backends.service)
                if service is not None and service.in_pool:
                    self._demand(target)
        self._early_services.clear()
        self._early_nodes.clear()

    def _demand(self, key: Key) -> None:
        self._demands[key] = time.time()
        self.queue.add(key)


def is_met(demand: float, triggered: float) -> bool:
    """Whether a target was touched since the demand. A time from the future is somebody's mistake, and no answer."""
    return demand <= triggered <= time.time() + SKEW


def trigger_value(moment: datetime) -> str:
    """To the microsecond: with seconds alone a second change within one would be no change."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
