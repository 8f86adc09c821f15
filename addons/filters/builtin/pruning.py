"""Removes addresses from Endpoints and EndpointSlices (v1 and v1beta1) by the node of each address."""

from __future__ import annotations

from collections.abc import Callable

from addons.filters.builtin.topology import NodeRule
from addons.filters.verdict import Note, Outcome, ignore_note
from kube.wire.api_objects import ApiObject
from kube.wire.fields import Fields

SLICE = "EndpointSlice"
ENDPOINTS = "Endpoints"

MAX_ENDPOINTS = 10_000
"""Endpoints of one object: ten times what Kubernetes' controllers put into one. Each costs microseconds of the event
loop."""

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_HOSTNAME = "kubernetes.io/hostname"


def is_too_large(obj: ApiObject) -> bool:
    """Whether an object has more than MAX_ENDPOINTS, and so is not filtered."""
    return _size(obj.fields) > MAX_ENDPOINTS


def _size(fields: Fields) -> int:
    """Count the endpoints of a slice, or the addresses in all subsets of an Endpoints object."""
    size = fields.count("endpoints") + fields.count("subsets")
    if size > MAX_ENDPOINTS:
        return size
    subsets = fields.children("subsets")
    return size + sum(subset.count("addresses") + subset.count("notReadyAddresses") for subset in subsets)


def service_of(obj: ApiObject) -> str:
    """Return the name of the Service, in the object's namespace; "" for a slice without the label."""
    return obj.name if obj.kind == ENDPOINTS else obj.labels.get(SERVICE_NAME_LABEL, "")


def ready_nodes_of(obj: ApiObject) -> set[str]:
    """Return the nodes that the object names with a ready endpoint. An endpoint of a slice without the condition counts
    as ready (discovery API)."""
    if obj.kind == ENDPOINTS:
        ready = [
            a.text("nodeName")
            for subset in obj.fields.children("subsets")
            for a in subset.children("addresses")
        ]
    else:
        node_of = node_reader(obj)
        endpoints = obj.fields.children("endpoints")
        ready = [node_of(e) for e in endpoints if e.child("conditions").flag("ready") is not False]
    return {node for node in ready if node}


def prune(obj: ApiObject, rule: NodeRule, note: Note) -> int:
    """Remove the endpoints that the rule does not allow, ready or not, and the subsets that become empty (as YurtHub
    does). The object stays, even emptied. Return how many were removed; 0 means that not a byte differs."""
    keeps = _keeper(obj, rule, note)
    if obj.kind == SLICE:
        return obj.fields.keep("endpoints", keeps)
    removed = 0
    for subset in obj.fields.children("subsets"):
        removed += subset.keep("addresses", keeps) + subset.keep("notReadyAddresses", keeps)
    return removed + obj.fields.keep("subsets", has_addresses)


def _keeper(obj: ApiObject, rule: NodeRule, note: Note) -> Callable[[Fields], bool]:
    node_of, allows = node_reader(obj), rule.allows
    if note is ignore_note:
        # The hot path, by far most often with v1: one call less for each endpoint.
        if node_of is _node_of:
            return lambda endpoint: allows(endpoint.text("nodeName"))
        return lambda endpoint: allows(node_of(endpoint))

    def keeps_with_note(endpoint: Fields) -> bool:
        node = node_of(endpoint)
        outcome = Outcome.KEPT if allows(node) else Outcome.DROPPED
        note(", ".join(endpoint.texts("addresses")) or endpoint.text("ip"), outcome, rule.explain(node))
        return outcome is Outcome.KEPT

    return keeps_with_note


def node_reader(obj: ApiObject) -> Callable[[Fields], str]:
    """Return the function that reads the node of an endpoint of this object, or of an address."""
    return _node_of_v1beta1 if obj.api_version == "discovery.k8s.io/v1beta1" else _node_of


def _node_of(endpoint: Fields) -> str:
    return endpoint.text("nodeName")


def _node_of_v1beta1(endpoint: Fields) -> str:
    """Return the node of an endpoint in v1beta1, which had it first in its topology, later also in nodeName."""
    return endpoint.mapping("topology").get(_HOSTNAME) or endpoint.text("nodeName")


def has_addresses(subset: Fields) -> bool:
    """Whether a subset of Endpoints has any address, ready or not."""
    return subset.has("addresses") or subset.has("notReadyAddresses")
