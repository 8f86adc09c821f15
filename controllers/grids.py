"""Maintains one Service for each ServiceGrid, annotated so that hubs keep its traffic among near nodes.

The patch of a Service sets the fields of the template. It removes fields that the template no longer has, so that the
server's default returns. All other fields (clusterIP, families, node ports, labels and annotations of other writers)
stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from controllers.cluster.kinds import GRID_SELECTOR, SERVICES, TOPOLOGY_KEYS, Service
from controllers.cluster.node_pools import with_condition
from controllers.runtime.controller import REFUSED, Context, Controller, own_key
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, number, objects, parsed_note, text, texts
from controllers.runtime.write_client import ObjectReference, unless_gone
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.label_syntax import key_faults
from kube.requests.node_labels import ANY_ENDPOINT, parse_topology_keys
from kube.requests.request_info import ResourceType
from kube.store.store import Key

GRID_TYPE = ResourceType("superedge.io", "v1", "servicegrids")
GRID_KIND = "ServiceGrid"


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid keeps traffic among nodes with the same value of the label `key`. `template` is the spec of its
    Service."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    key: str = ""
    template: Json = field(default_factory=dict)
    deleting: bool = False
    observed: int = 0
    conditions: tuple[Json, ...] = ()

    @property
    def service_name(self) -> str:
        return f"{self.name}-svc"

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(GRID_TYPE.api_version, GRID_KIND, self.namespace, self.name, self.uid)


def read_grid(obj: Json) -> Grid:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    return Grid(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        generation=number(meta.get("generation")),
        labels=texts(meta.get("labels")),
        annotations=texts(meta.get("annotations")),
        key=text(spec.get("gridUniqKey")),
        template=mapping(spec.get("template")),
        deleting="deletionTimestamp" in meta,
        observed=number(status.get("observedGeneration")),
        conditions=tuple(objects(status.get("conditions"))),
    )


SERVICEGRIDS = WatchedResource(GRID_TYPE, read_grid)


GRID_KEY = "superedge.io/grid-uniq-key"
APPLIED = "superedge.io/applied-fields"
"""The Service annotation that records which labels, annotations and spec fields come from the grid."""
OWN_ANNOTATIONS = frozenset({TOPOLOGY_KEYS, APPLIED, "kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations of a grid that are not copied to its Service: the manager's own, and those about the grid."""
TEMPLATE_FIELDS = frozenset(
    {
        *("clusterIP", "externalTrafficPolicy", "internalTrafficPolicy", "ipFamilies"),
        *("ipFamilyPolicy", "ports"),
        *("publishNotReadyAddresses", "selector", "sessionAffinity", "sessionAffinityConfig"),
        *("trafficDistribution", "type"),
    }
)
"""The fields of a ServiceSpec that a template may set.

The manager may write Services in all namespaces; without this list every editor of a grid could use that right. So a
template cannot set fields that reach beyond the pods that it selects (externalIPs, externalName, loadBalancer…), nor
fields that Kubernetes adds later.
"""
TEMPLATE_VALUES = {"type": ("ClusterIP", "NodePort"), "clusterIP": ("None",)}
"""The permitted values of these fields: a chosen clusterIP could belong to another Service."""
PORT_FIELDS = frozenset({"appProtocol", "name", "nodePort", "port", "protocol", "targetPort"})
"""The fields of a ServicePort that a template may set."""
REMOVED_FIELDS = frozenset({"topologyKeys", "ipFamily"})
"""ServiceSpec fields of SuperEdge's time that present API servers do not have."""

LONGEST_SHOWN = 64
"""Characters of a key in a message."""
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def new_service(grid: Grid) -> Json:
    """Return the Service to create for a grid."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": grid.namespace,
            "name": grid.service_name,
            "labels": _labels(grid),
            "annotations": _annotations(grid),
            "ownerReferences": [grid.reference.owner],
        },
        "spec": _spec(grid),
    }


def service_patch(grid: Grid, live: Json) -> Json:
    """Return the merge patch that makes a live Service match its grid; {} if nothing differs.

    The patch names the resourceVersion, so the API server answers 409 to an outdated one.
    """
    meta = metadata(live)
    labels, annotations = texts(meta.get("labels")), texts(meta.get("annotations"))
    applied = _parse_applied(annotations.get(APPLIED, ""))
    patch: Json = {"metadata": {}}
    if changes := _text_changes(labels, _labels(grid), applied["labels"]):
        patch["metadata"]["labels"] = changes
    if changes := _text_changes(annotations, _annotations(grid), applied["annotations"]):
        patch["metadata"]["annotations"] = changes
    owners = objects(meta.get("ownerReferences"))
    if all(owner.get("uid") != grid.uid for owner in owners):
        patch["metadata"]["ownerReferences"] = [*owners, grid.reference.owner]
    if spec := _spec_changes(mapping(live.get("spec")), _spec(grid), applied["spec"]):
        patch["spec"] = spec
    if patch == {"metadata": {}}:
        return {}
    patch["metadata"]["resourceVersion"] = meta.get("resourceVersion")
    return patch


def restricts(key: str) -> bool:
    """Whether hubs restrict traffic by this key when they read it from the Service's annotation."""
    return parse_topology_keys(json.dumps([key])) == (key,) and key != ANY_ENDPOINT


def key_label(key: str) -> str | None:
    """Convert a label key to a label value, which cannot have a slash; None if the result would be invalid."""
    value = key.replace("/", "_")
    return value if _LABEL_VALUE.fullmatch(value) else None


def _labels(grid: Grid) -> dict[str, str]:
    label = key_label(grid.key)
    return {**grid.labels, GRID_SELECTOR: grid.name, **({GRID_KEY: label} if label else {})}


def _annotations(grid: Grid) -> dict[str, str]:
    given = {name: text for name, text in grid.annotations.items() if name not in OWN_ANNOTATIONS}
    applied = {"labels": sorted(_labels(grid)), "annotations": sorted(given), "spec": sorted(_spec(grid))}
    return {
        **given,
        TOPOLOGY_KEYS: json.dumps([grid.key]),
        APPLIED: json.dumps(applied, separators=(",", ":")),
    }


def _spec(grid: Grid) -> Json:
    """Return the permitted fields of the template that are not empty."""
    spec = {name: value for name, value in grid.template.items() if _passes(name, value) and _is_set(value)}
    if "ports" in spec:
        spec["ports"] = [
            {name: value for name, value in port.items() if name in PORT_FIELDS}
            for port in objects(spec["ports"])
        ]
    return spec


def refused_fields(grid: Grid) -> list[str]:
    """Return the template's fields that are not permitted, sorted."""
    return sorted(
        name
        for name, value in grid.template.items()
        if name not in REMOVED_FIELDS and _is_set(value) and not _passes(name, value)
    )


def _passes(name: str, value: object) -> bool:
    return name in TEMPLATE_FIELDS and (name not in TEMPLATE_VALUES or value in TEMPLATE_VALUES[name])


def _is_set(value: object) -> bool:
    return value not in (None, "", [], {}, False)


def _parse_applied(note: str) -> dict[str, list[str]]:
    parsed = parsed_note(note)
    lists = {name: parsed.get(name) for name in ("labels", "annotations", "spec")}
    return {
        name: [text for text in names if isinstance(text, str)] if isinstance(names, list) else []
        for name, names in lists.items()
    }


def _text_changes(
    live: Mapping[str, str], wanted: Mapping[str, str], applied: Iterable[str]
) -> dict[str, str | None]:
    gone: dict[str, str | None] = {key: None for key in applied if key in live and key not in wanted}
    return gone | {key: value for key, value in wanted.items() if live.get(key) != value}


def _spec_changes(live: Json, wanted: Json, applied: Iterable[str]) -> Json:
    changes: Json = {}
    # Only the template may set ports and selector, even when it names none.
    for name in {*applied, "ports", "selector"} - set(wanted):
        if live.get(name) not in (None, [], {}):
            changes[name] = None
    for name, value in wanted.items():
        present = live.get(name)
        if name == "ports":
            if not _same_ports(objects(present), objects(value)):
                changes[name] = _ports(objects(present), objects(value), live, wanted)
        elif name == "selector":
            if difference := _text_changes(texts(present), texts(value), texts(present)):
                changes[name] = difference
        # The server appends a second IP family.
        elif not _holds(present, value, grown=name == "ipFamilies"):
            changes[name] = value
    return changes


def _holds(live: object, wanted: object, *, grown: bool = False) -> bool:
    """Whether a live value equals the wanted one, ignoring what the API server adds."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_holds(live.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        if not isinstance(live, list):
            return False
        enough = len(live) >= len(wanted) if grown else len(live) == len(wanted)
        return enough and all(map(_holds, live, wanted))
    # The server omits fields that are false, zero or empty.
    return live == wanted or (not wanted and live is None)


def _identity(port: Json) -> tuple[object, object]:
    return port.get("port"), port.get("protocol") or "TCP"


def _same_ports(live: list[Json], wanted: list[Json]) -> bool:
    return len(live) == len(wanted) and all(map(_same_port, live, wanted))


def _same_port(live: Json, wanted: Json) -> bool:
    """Compare two ports by the API server's defaults: no name, and a targetPort equal to the port."""
    expected = {"targetPort": wanted.get("port"), "name": "", "appProtocol": None}
    expected |= {name: value for name, value in wanted.items() if value not in (None, "")}
    return _identity(live) == _identity(wanted) and _holds(live, expected)


def _ports(live: list[Json], wanted: list[Json], live_spec: Json, wanted_spec: Json) -> list[Json]:
    """Return the wanted ports, with the node ports that the API server has allocated to them."""
    keeps = wanted_spec.get("type", live_spec.get("type")) in ("NodePort", "LoadBalancer")
    allocated = {_identity(port): port["nodePort"] for port in live if port.get("nodePort")} if keeps else {}
    return [
        {**port, "nodePort": allocated[_identity(port)]}
        if not port.get("nodePort") and _identity(port) in allocated
        else port
        for port in wanted
    ]


READY = "Ready"
"""The condition that reports whether the grid's Service follows its template."""


class ServiceGridController(Controller):
    """Maintains the Service of a grid. Key: a grid. Garbage collection deletes the Service of a deleted grid."""

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
        if not restricts(grid.key):
            faults = "; ".join(key_faults(grid.key)) or "it means any endpoint"
            shown = f"{grid.key[:LONGEST_SHOWN]!r}"
            message = f"gridUniqKey {shown} is not a label key, and would restrict nothing: {faults}"
            await self._context.events.warning(grid.reference, "Invalid", message)
            await self._report(grid, "InvalidGridUniqKey", message)
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
        message = f"service {grid.service_name} matches the grid"
        if refused := ", ".join(refused_fields(grid)):
            message += f", without fields that a template cannot set: {refused}"
            await self._context.events.warning(grid.reference, "FieldsRefused", message)
        await self._report(grid, "", message)

    async def _sync(self, grid: Grid) -> str:
        """Create, change or adopt the Service; return why it cannot be done, or ""."""
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
        with unless_gone():  # the grid itself, or the subresource: SuperEdge's own CRD has none
            await self.patch(self._grids, (grid.namespace, grid.name), {"status": status}, "status")


def ownership_conflict(grid: Grid, service: Service) -> str:
    """Return why the grid must not change a Service of its name; "" if it may.

    A grid adopts a Service without an owner if the Service's label names the grid. Without the label the Service
    belongs to a user.
    """
    if service.owner is not None:
        if service.owner.uid == grid.uid:
            return ""
        return f"service {service.name} belongs to {service.owner.kind} {service.owner.name}"
    if service.grid != grid.name:
        return f"service {service.name} exists and was not made for this grid"
    return ""


def grids_of(key: Key, old: Service | None, new: Service | None) -> Iterable[Key]:
    """MapFunc: the grids that a Service concerns: its owner, the grid in its label, and the grid of the same name."""
    if old == new:
        return set()
    names = {key[1].removesuffix("-svc")} if key[1].endswith("-svc") else set()
    for service in (old, new):
        if service is not None and service.grid:
            names.add(service.grid)
        if service is not None and service.owner is not None and service.owner.kind == GRID_KIND:
            names.add(service.owner.name)
    return {(key[0], name) for name in names}
