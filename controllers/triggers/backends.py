"""What the trigger controllers read of Endpoints and EndpointSlices: whose they are, and on which nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.runtime.informer import ResourceKind
from controllers.runtime.reading import mapping, metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

SERVICE_NAME = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""
HOSTNAME = "kubernetes.io/hostname"
"""The key under which v1beta1 slices name the node in an endpoint's topology."""
LONGEST_SECONDS = 12
"""Digits of a time in seconds: until the year 33658."""


@dataclass(frozen=True, slots=True)
class Backends:
    """`triggered` is the time that the trigger annotation says, in seconds of the epoch; 0 without one."""

    service: Key
    nodes: frozenset[str]
    triggered: float = 0.0
    deleting: bool = False


def endpoints_kind(annotation: str) -> ResourceKind[Backends]:
    """Endpoints are those of the Service of the same name."""

    def read(obj: Json) -> Backends:
        name = text(metadata(obj).get("name"))
        return _read(obj, name, objects(obj.get("subsets")), annotation)

    return _kind(ResourceType("", "v1", "endpoints"), read, _trimmer("subsets", _endpoints_nodes, annotation))


def slices_kind(annotation: str) -> ResourceKind[Backends]:
    """A Service has any number of slices, which its name labels."""

    def read(obj: Json) -> Backends:
        name = texts(metadata(obj).get("labels")).get(SERVICE_NAME, "")
        return _read(obj, name, objects(obj.get("endpoints")), annotation)

    resource = ResourceType("discovery.k8s.io", "v1", "endpointslices")
    return _kind(resource, read, _trimmer("endpoints", _slice_nodes, annotation))


def triggered_at(value: str) -> float:
    """The time that a trigger annotation says, as we or OpenYurt write it; 0 for anything else."""
    try:
        return (
            float(value)
            if value.isdecimal() and len(value) <= LONGEST_SECONDS
            else datetime.fromisoformat(value).timestamp()
        )
    except (ValueError, OverflowError):
        return 0.0


def _kind(
    resource: ResourceType, read: Callable[[Json], Backends], trim: Callable[[Json], Json]
) -> ResourceKind[Backends]:
    indexes: dict[str, Callable[[Backends], list[str]]] = {
        "service": lambda backends: ["/".join(backends.service)],
        "node": lambda backends: list(backends.nodes),
    }
    return ResourceKind(resource, read, trim=trim, indexes=indexes)


def _read(obj: Json, service: str, parts: list[Json], annotation: str) -> Backends:
    meta = metadata(obj)
    return Backends(
        service=(text(meta.get("namespace")), service),
        # As trimmed: the names alone. Interned, because each node is named by thousands of them.
        nodes=frozenset(sys.intern(text(part.get("nodeName"))) for part in parts),
        triggered=triggered_at(texts(meta.get("annotations")).get(annotation, "")),
        deleting="deletionTimestamp" in meta,
    )


def _trimmer(part: str, nodes_of: Callable[[Json], Iterator[str]], annotation: str) -> Callable[[Json], Json]:
    """Thousands of slices are kept for the names in them only: one of a hundred endpoints shrinks to a few names."""

    def trim(obj: Json) -> Json:
        meta = metadata(obj)
        kept = ("namespace", "name", "resourceVersion", "deletionTimestamp")
        label = texts(meta.get("labels")).get(SERVICE_NAME)
        trigger = texts(meta.get("annotations")).get(annotation)
        names = sorted({node for each in objects(obj.get(part)) for node in nodes_of(each) if node})
        return {
            "metadata": {
                **{name: meta[name] for name in kept if name in meta},
                "labels": {SERVICE_NAME: label},
                "annotations": {annotation: trigger},
            },
            part: [{"nodeName": name} for name in names],
        }

    return trim


def _endpoints_nodes(subset: Json) -> Iterator[str]:
    """Also of addresses that are not ready: they may be so when a hub looks."""
    for addresses in ("addresses", "notReadyAddresses"):
        for each in objects(subset.get(addresses)):
            yield text(each.get("nodeName"))


def _slice_nodes(endpoint: Json) -> Iterator[str]:
    yield text(endpoint.get("nodeName"))
    for topology in ("topology", "deprecatedTopology"):
        yield text(mapping(endpoint.get(topology)).get(HOSTNAME))
