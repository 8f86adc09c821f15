"""The facts that trigger controllers read from Endpoints and EndpointSlices: their Service and their nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.store.store import Key

SERVICE_NAME = "kubernetes.io/service-name"
"""The label of an EndpointSlice whose value is the name of its Service."""
HOSTNAME = "kubernetes.io/hostname"
"""The topology key by which an endpoint of a v1beta1 slice names its node."""
LONGEST_SECONDS = 12
"""Digits of a time in seconds: enough until the year 33658."""


@dataclass(frozen=True, slots=True)
class Backends:
    """The facts of an Endpoints or EndpointSlice object. `triggered` is the time in the trigger annotation, in seconds
    since 1970; 0 without one."""

    service: Key
    nodes: frozenset[str]
    triggered: float = 0.0
    deleting: bool = False


def endpoints_resource(annotation: str) -> WatchedResource[Backends]:
    """Describe the watch of Endpoints, which belong to the Service of the same name."""
    type_ = ResourceType("", "v1", "endpoints")
    return _watched(type_, "subsets", lambda meta: text(meta.get("name")), _endpoints_nodes, annotation)


def endpoint_slices_resource(annotation: str) -> WatchedResource[Backends]:
    """Describe the watch of EndpointSlices, which belong to the Service in their label."""
    type_ = ResourceType("discovery.k8s.io", "v1", "endpointslices")
    return _watched(
        type_,
        "endpoints",
        lambda meta: texts(meta.get("labels")).get(SERVICE_NAME, ""),
        _slice_nodes,
        annotation,
    )


def triggered_at(value: str) -> float:
    """Parse the time in a trigger annotation that this manager or OpenYurt wrote; 0 for any other value."""
    try:
        return (
            float(value)
            if value.isdecimal() and len(value) <= LONGEST_SECONDS
            else datetime.fromisoformat(value).timestamp()
        )
    except (ValueError, OverflowError):
        return 0.0


def _watched(
    type_: ResourceType,
    part: str,
    service_of: Callable[[Json], str],
    nodes_of: Callable[[Json], Iterator[str]],
    annotation: str,
) -> WatchedResource[Backends]:
    """Describe the watch. `service_of` returns the Service by an object's metadata, `nodes_of` the nodes in an element
    of list `part`."""

    def read(obj: Json) -> Backends:
        meta = metadata(obj)
        return Backends(
            service=(text(meta.get("namespace")), service_of(meta)),
            # The transform has left node names only. Thousands of slices name the same node, hence the interning.
            nodes=frozenset(sys.intern(text(named.get("nodeName"))) for named in objects(obj.get(part))),
            triggered=triggered_at(texts(meta.get("annotations")).get(annotation, "")),
            deleting="deletionTimestamp" in meta,
        )

    def transform(obj: Json) -> Json:
        """Keep only the node names: a slice of a hundred endpoints shrinks to a few names."""
        meta = metadata(obj)
        fields = ("namespace", "name", "resourceVersion", "deletionTimestamp")
        label = texts(meta.get("labels")).get(SERVICE_NAME)
        trigger = texts(meta.get("annotations")).get(annotation)
        names = sorted({node for endpoint in objects(obj.get(part)) for node in nodes_of(endpoint) if node})
        return {
            "metadata": {
                **{name: meta[name] for name in fields if name in meta},
                "labels": {SERVICE_NAME: label},
                "annotations": {annotation: trigger},
            },
            part: [{"nodeName": name} for name in names],
        }

    indexes: dict[str, Callable[[Backends], list[str]]] = {
        "service": lambda backends: ["/".join(backends.service)],
        "node": lambda backends: list(backends.nodes),
    }
    return WatchedResource(type_, read, transform=transform, indexers=indexes)


def _endpoints_nodes(subset: Json) -> Iterator[str]:
    """Return the nodes of all addresses, including not ready ones, which may be ready when the hub filters them."""
    for addresses in ("addresses", "notReadyAddresses"):
        for address in objects(subset.get(addresses)):
            yield text(address.get("nodeName"))


def _slice_nodes(endpoint: Json) -> Iterator[str]:
    yield text(endpoint.get("nodeName"))
    for topology in ("topology", "deprecatedTopology"):
        yield text(mapping(endpoint.get(topology)).get(HOSTNAME))
