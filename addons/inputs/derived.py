"""Values derived from the objects of a source, cached until the object changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from addons.filters.builtin.pruning import SERVICE_NAME_LABEL, ready_nodes_of
from addons.filters.inputs import Selection, ServiceFacts, TargetPort, family_of
from kube.requests.node_labels import read_labels
from kube.store.store import Change, Item, Key
from kube.wire.fields import Fields
from kube.wire.json_fields import parse_object


class Derived[Value]:
    """Derives a value from each object once, at the first request for it."""

    def __init__(self, read: Callable[[Item], Value]) -> None:
        self._read = read
        self._known: dict[Key, tuple[Item, Value]] = {}

    def of(self, item: Item) -> Value:
        """Return the value of a current object of the source."""
        known = self._known.get(item.key)
        if known is None or known[0] is not item:
            known = self._known[item.key] = (item, self._read(item))
        return known[1]

    def follow(self, change: Change) -> tuple[Value, Value] | None:
        """Return the previous and the present value of a changed object. None if it was added or deleted, or its value
        was never requested.

        Another view of the same source may handle the change earlier, and so have requested the present value already.
        """
        known = self._known.pop(change.key, None)
        if known is None or change.old is None or change.new is None:
            return None
        before = known[1] if known[0] is change.old else self._read(change.old)
        return before, self.of(change.new)

    def clear(self) -> None:
        self._known.clear()


class SliceFacts(NamedTuple):
    """The facts of an EndpointSlice that decide about other slices of its Service."""

    address_type: str
    ready: frozenset[str]
    """The nodes with a ready endpoint."""


def service_facts_in(item: Item) -> ServiceFacts:
    return ServiceFacts(item.decode().annotations)


MEMBERSHIP = frozenset({"nodes", "readyNodeNum", "unreadyNodeNum"})
"""Fields of a NodePool's status that its controller writes together. A pool without nodes has only the numbers."""


def members_in(item: Item) -> frozenset[str] | None:
    """Return the nodes of a NodePool; None until its controller has written them."""
    status = item.decode().fields.child("status")
    if nodes := status.texts("nodes"):
        return frozenset(nodes)
    return frozenset() if MEMBERSHIP & parse_object(status.encode()).keys() else None


def slice_facts_in(item: Item) -> SliceFacts:
    obj = item.decode()
    return SliceFacts(obj.fields.text("addressType"), frozenset(ready_nodes_of(obj)))


def pods_in(item: Item) -> frozenset[str]:
    endpoints = item.decode().fields.children("endpoints")
    return frozenset(endpoint.child("targetRef").text("name") for endpoint in endpoints)


def selection_in(item: Item) -> Selection:
    """Return how a Service selects its pods."""
    spec = item.decode().fields.child("spec")
    families = spec.texts("ipFamilies") or [family_of(spec.text("clusterIP"))]
    ports = [
        TargetPort(port.text("name"), port.text("protocol") or "TCP", _target_of(port))
        for port in spec.children("ports")
    ]
    return Selection(
        spec.mapping("selector"),
        spec.flag("publishNotReadyAddresses") is True,
        families[0],
        tuple(ports) if all(port.number for port in ports) else None,
    )


def _target_of(port: Fields) -> int:
    """Return the number of a Service's target port, which is an integer in JSON and a message in protobuf; 0 if the
    port has a name.
    """
    return port.number("targetPort") or port.child("targetPort").number("intVal")


def service_of_slice(item: Item | None) -> Key | None:
    return None if item is None else (item.key[0], item.labels.get(SERVICE_NAME_LABEL, ""))


def addresses_of(node: Item | None) -> frozenset[str]:
    if node is None:
        return frozenset()
    status = node.decode().fields.child("status")
    return frozenset(address.text("address") for address in status.children("addresses"))


def labels_in(item: Item) -> dict[str, Mapping[str, str]]:
    """Return the labels of each node that one of the manager's NodeLabels objects lists, by the node's name."""
    by_node: dict[str, Mapping[str, str]] = {}
    for group in item.decode().fields.children("groups"):
        labels = group.mapping("labels")
        by_node.update({name: read_labels(name, labels) for name in group.texts("nodes")})
    return by_node
