"""Keeps one Service for each ServiceGrid, annotated so that hubs keep its traffic in the cell (SuperEdge)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from controllers.cluster.node_pools import with_condition
from controllers.cluster.service_grids import GRID_KIND, SERVICEGRIDS, Grid
from controllers.cluster.services import SERVICES, Service
from controllers.grids.grid_service import new_service, refused_fields, service_patch
from controllers.runtime.controller import REFUSED, Context, Controller, own_key
from kube.errors import StatusError
from kube.json_type import Json
from kube.store.store import Key

READY = "Ready"
"""The condition that says whether the grid's Service is as its template says."""


class ServiceGridController(Controller):
    """Key: a grid. Garbage collection deletes the Service of a deleted grid."""

    name = "servicegrid"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._grids = self.watch(SERVICEGRIDS, own_key)
        self._services = self.watch(SERVICES, grids_of)

    async def reconcile(self, key: Key) -> None:
        grid = self._grids.get(key)
        if grid is None or grid.deleting:
            return
        if not grid.key:
            message = "this service grid has an empty gridUniqKey"
            await self._context.events.warning(grid.reference, "Empty", message)
            await self._report(grid, "EmptyGridUniqKey", message)
            return
        try:
            conflict = await self._sync(grid)
        except StatusError as error:
            if error.code in REFUSED:
                await self._context.events.warning(grid.reference, "ServiceRefused", str(error))
                await self._report(grid, "ServiceRefused", str(error))
            raise
        if conflict:
            await self._context.events.warning(grid.reference, "NameConflict", conflict)
            await self._report(grid, "NameConflict", conflict)
            return
        message = f"service {grid.service_name} is as the grid says"
        if refused := ", ".join(refused_fields(grid)):
            message += f", without fields that a template cannot set: {refused}"
            await self._context.events.warning(grid.reference, "FieldsRefused", message)
        await self._report(grid, "", message)

    async def _sync(self, grid: Grid) -> str:
        """Create, change or adopt the Service; returns the conflict that prevents it, "" without one."""
        for key, surplus in self._services.by_index("owner", grid.uid):
            if surplus.name != grid.service_name and not surplus.deleting:
                await self._context.api.delete(SERVICES.type, *key, surplus.uid)
                await self._context.events.normal(
                    grid.reference, "Deleted", f"surplus service {surplus.name}"
                )
        key = (grid.namespace, grid.service_name)
        service, live = self._services.get(key), self._services.object(key)
        if service is None or live is None:
            written = await self._context.api.create(SERVICES.type, new_service(grid))
            await self._services.wait_until_observed(written)
            await self._context.events.normal(grid.reference, "Created", f"service {grid.service_name}")
            return ""
        if service.deleting:
            return f"service {service.name} is being deleted"
        if reason := ownership_conflict(grid, service):
            return reason
        if patch := service_patch(grid, live):
            await self.patch(self._services, key, patch)
            what = "Updated" if service.owner else "Adopted"
            await self._context.events.normal(grid.reference, what, f"service {service.name}")
        return ""

    async def _report(self, grid: Grid, reason: str, message: str) -> None:
        """Write the Ready condition: True if the reason is ""."""
        condition: Json = {
            "status": "False" if reason else "True",
            "observedGeneration": grid.generation,
            "reason": reason or "ServiceReady",
            "message": message,
        }
        conditions = with_condition(grid.conditions, READY, condition, datetime.now(UTC))
        if conditions == list(grid.conditions) and grid.observed == grid.generation:
            return
        status = {"observedGeneration": grid.generation, "conditions": conditions}
        try:
            await self.patch(self._grids, (grid.namespace, grid.name), {"status": status}, "status")
        except StatusError as error:
            # The grid was deleted, or its CRD is SuperEdge's, which has no status subresource.
            if error.code != 404:
                raise


def ownership_conflict(grid: Grid, service: Service) -> str:
    """Why the grid must not change a Service of its name, "" if it may.

    A grid adopts a Service without owner if the Service's label names the grid. Without the label it is a user's own.
    """
    if service.owner is not None:
        if service.owner.uid == grid.uid:
            return ""
        return f"service {service.name} belongs to {service.owner.kind} {service.owner.name}"
    if service.grid != grid.name:
        return f"service {service.name} exists and was not made for this grid"
    return ""


def grids_of(key: Key, old: Service | None, new: Service | None) -> Iterable[Key]:
    """The grids that a Service concerns: its owner, the grid that its label names, and the grid that wants its name."""
    if old == new:
        return set()
    names = {key[1].removesuffix("-svc")} if key[1].endswith("-svc") else set()
    for service in (old, new):
        if service is not None and service.grid:
            names.add(service.grid)
        if service is not None and service.owner is not None and service.owner.kind == GRID_KIND:
            names.add(service.owner.name)
    return {(key[0], name) for name in names}
