"""Tables (meta.k8s.io/v1) of lists, single objects and events, as kube-apiserver makes them for kubectl.

The column descriptions (`columns.json`) are those of Kubernetes 1.36, generated from its API documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.tables.core_cells import (
    aged_cells,
    claim_cells,
    config_map_cells,
    endpoints_cells,
    event_cells,
    lease_cells,
    namespace_cells,
    node_cells,
    secret_cells,
    service_cells,
    slice_cells,
)
from kube.tables.workload_cells import (
    daemon_set_cells,
    deployment_cells,
    job_cells,
    pod_cells,
    replica_set_cells,
    stateful_set_cells,
    template_cells,
)

GROUP = "meta.k8s.io"
TABLE = (f"{GROUP}/v1", "Table")
OBJECTS = frozenset({"None", "Metadata", "Object"})
"""The values of `includeObject`."""


class _Printer(NamedTuple):
    """The columns and cells of a kind. The suffix of a column: `+` for wide output only, `#` for a number."""

    columns: str
    cells: Callable[[Json], list[Any]]


_AGED = _Printer("Name,Age", aged_cells)
_CONTAINERS = "Containers+,Images+"
_PRINTERS = {
    ("", "Pod"): _Printer(
        "Name,Ready,Status,Restarts,Age,IP+,Node+,Nominated Node+,Readiness Gates+", pod_cells
    ),
    ("", "Service"): _Printer("Name,Type,Cluster-IP,External-IP,Port(s),Age,Selector+", service_cells),
    ("", "Endpoints"): _Printer("Name,Endpoints,Age", endpoints_cells),
    ("discovery.k8s.io", "EndpointSlice"): _Printer("Name,AddressType,Ports,Endpoints,Age", slice_cells),
    ("", "Node"): _Printer(
        "Name,Status,Roles,Age,Version,Internal-IP+,External-IP+,OS-Image+,Kernel-Version+,Container-Runtime+",
        node_cells,
    ),
    ("", "Event"): _Printer(
        "Last Seen,Type,Reason,Object,Subobject+,Source+,Message,First Seen+,Count+,Name+", event_cells
    ),
    ("", "Namespace"): _Printer("Name,Status,Age", namespace_cells),
    ("", "Secret"): _Printer("Name,Type,Data,Age", secret_cells),
    ("", "ConfigMap"): _Printer("Name,Data,Age", config_map_cells),
    ("", "ServiceAccount"): _AGED,
    ("", "PersistentVolumeClaim"): _Printer(
        "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode+",
        claim_cells,
    ),
    ("coordination.k8s.io", "Lease"): _Printer("Name,Holder,Age", lease_cells),
    ("", "PodTemplate"): _Printer("Name,Containers,Images,Pod Labels", template_cells),
    ("apps", "Deployment"): _Printer(
        f"Name,Ready,Up-to-date,Available,Age,{_CONTAINERS},Selector+", deployment_cells
    ),
    ("apps", "DaemonSet"): _Printer(
        f"Name,Desired#,Current#,Ready#,Up-to-date#,Available#,Node Selector,Age,{_CONTAINERS},Selector+",
        daemon_set_cells,
    ),
    ("apps", "ReplicaSet"): _Printer(
        f"Name,Desired#,Current#,Ready#,Age,{_CONTAINERS},Selector+", replica_set_cells
    ),
    ("apps", "StatefulSet"): _Printer(f"Name,Ready,Age,{_CONTAINERS}", stateful_set_cells),
    ("batch", "Job"): _Printer(f"Name,Status,Completions,Duration,Age,{_CONTAINERS},Selector+", job_cells),
}
_PRINTERS["events.k8s.io", "Event"] = _PRINTERS["", "Event"]
KNOWN = frozenset(_PRINTERS)
"""Groups and kinds whose columns the hub knows. For other kinds it asks the cloud, or shows name and age."""
RESOURCES = frozenset((group, f"{kind.lower().removesuffix('s')}s") for group, kind in KNOWN)
"""The known kinds by group and resource."""


def is_known(type_: ResourceType) -> bool:
    """True if the hub knows the columns of a kind."""
    return (type_.group, type_.resource) in RESOURCES


def table(
    objects: Iterable[Json], api_version: str, kind: str, metadata: Json, include: str, version: str = "v1"
) -> Json:
    """Make a Table of objects of one kind.

    `metadata` is that of the list or object; `include` is one of OBJECTS; `version` is that of the Table, v1 or
    v1beta1.
    """
    printer = _printer(api_version, kind)
    return {
        "kind": TABLE[1],
        "apiVersion": f"{GROUP}/{version}",
        "metadata": metadata,
        "columnDefinitions": _columns(printer.columns, api_version.rpartition("/")[0], kind),
        "rows": [_row(item, printer, include, version) for item in objects],
    }


def list_metadata(obj: Json) -> Json:
    """The list metadata for a Table of one object."""
    return {"resourceVersion": (obj.get("metadata") or {}).get("resourceVersion", "")}


def row(obj: Json, api_version: str, kind: str, include: str, version: str = "v1") -> Json:
    """The row of one object in such a Table."""
    return _row(obj, _printer(api_version, kind), include, version)


def _printer(api_version: str, kind: str) -> _Printer:
    group = api_version.rpartition("/")[0]
    return _PRINTERS.get((group, kind), _AGED)


def _columns(columns: str, group: str, kind: str) -> list[Json]:
    texts = _descriptions()
    own = texts.get(f"{group}/{kind}") or texts.get(f"/{kind}", {})
    return [_column(column, texts[""] | own) for column in columns.split(",")]


@cache
def _descriptions() -> Mapping[str, dict[str, str]]:
    """The descriptions of columns, by group and kind; those of all kinds are under ""."""
    texts: dict[str, dict[str, str]] = orjson.loads(Path(__file__).with_name("columns.json").read_bytes())
    return texts


def _column(text: str, descriptions: Mapping[str, str]) -> Json:
    name = text.rstrip("+#")
    return {
        "name": name,
        "type": "integer" if text.endswith("#") else "string",
        "format": "name" if name == "Name" else "",
        "description": descriptions.get(name, ""),
        "priority": int(text.endswith("+")),
    }


def _row(obj: Json, printer: _Printer, include: str, version: str) -> Json:
    if not isinstance(obj.get("metadata"), dict):
        obj = {**obj, "metadata": {}}
    row: Json = {"cells": printer.cells(obj)}
    phase = (obj.get("status") or {}).get("phase") if obj.get("kind") == "Pod" else ""
    if phase in ("Succeeded", "Failed"):
        said = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
        row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": said}]
    if include == "Object":
        row["object"] = obj
    elif include == "Metadata":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": f"{GROUP}/{version}",
            "metadata": obj["metadata"],
        }
    else:
        row["object"] = None
    return row
