"""Inputs of filters beyond the object in hand: Services, node labels, pools, health, pod statuses, and the hub's
address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kube.option import addresses

IPV4 = "IPv4"
IPV6 = "IPv6"
"""The name of the address family in `spec.ipFamilies` and in a slice's `addressType`."""


def family_of(address: str) -> str:
    return IPV6 if ":" in address else IPV4


class HubAddress(NamedTuple):
    """The addresses at which pods reach the hub: IP literals, the main one first, and the TLS port."""

    hosts: tuple[str, ...]
    port: int

    def host_of(self, family: str) -> str | None:
        """Return the first host of that family, None if the hub has none."""
        return next((host for host in self.hosts if family_of(host) == family), None)


AUTO_ADDRESS = "169.254.2.1"
"""The address for pods that the hub creates: link-local, so that it is unreachable from other nodes."""


class PodAddress(NamedTuple):
    """The addresses by which pods reach the hub; empty if none is set."""

    addresses: tuple[str, ...]
    makes: bool
    """Whether the hub itself gives the node these addresses, and listens there."""


def parse_pod_address(name: str, text: str) -> PodAddress:
    """Parse `auto`, or `auto,ADDRESS` with one address for each family, or addresses of the node."""
    first, *others = text.split(",")
    if first.strip() != "auto":
        return PodAddress(addresses(name, text), makes=False)
    return PodAddress(addresses(name, ",".join(others)) if others else (AUTO_ADDRESS,), makes=True)


class ServiceFacts(NamedTuple):
    """The part of a Service that decides about its endpoints."""

    annotations: Mapping[str, str]


class TargetPort(NamedTuple):
    """A port of a Service's pods."""

    name: str
    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The pods that a Service selects, and how its endpoints list them."""

    selector: Mapping[str, str] = field(default_factory=dict)
    """None if the Service selects no pods, and another controller makes its endpoints."""
    shows_unready: bool = False
    """spec.publishNotReadyAddresses"""
    family: str = IPV4
    """The family of the addresses in its Endpoints."""
    ports: tuple[TargetPort, ...] | None = ()
    """None if a port has a name instead of a number, which only the pods' specs define."""


class PodReport(NamedTuple):
    """The kubelet's status of a pod of its node in an outage, or the cloud's own status since."""

    name: str
    uid: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...]
    """The pod's addresses; None if the pod is no endpoint, because it has ended, was deleted, or has no address
    yet."""
    is_ready: bool
    is_terminating: bool
    since: str
    """The time of day of the report, for messages."""
    version: int = 0
    """The cloud's resourceVersion of the pod with the same status; 0 until the cloud has it."""
    is_fresh: bool = True
    """Whether the cloud got it just now: its next writes may not reflect it yet."""
    node: str = ""
    """The other node of the pool whose kubelet reported the pod; "" for this node."""

    def concerns(self, version: int) -> bool:
        """Whether an object that the cloud wrote at this version may not reflect the report yet."""
        return not self.version or version < self.version or self.is_fresh

    def of_family(self, family: str) -> list[str]:
        return [address for address in self.addresses if family_of(address) == family]


class PodReportLister(Protocol):
    """The pod statuses that kubelets report for a namespace. Each pod that a filter looks up is an input of its own."""

    @property
    def is_empty(self) -> bool: ...

    def of(self, name: str) -> Sequence[PodReport]:
        """Return the statuses of a pod: this node's first. Other nodes may report pods that they do not run."""

    def refuse(self, report: PodReport) -> None:
        """Count a report by a node about another node's pod."""

    def selected_by(self, selector: Mapping[str, str]) -> list[PodReport]:
        """Return the statuses of the pods that have all of these labels."""


class Inputs(Protocol):
    """The cluster's state for a filter.

    The hub records each input that a filter asks for, and filters the object again when that input changes. So a filter
    asks only for inputs that decide, and once for each object.
    """

    @property
    def node_name(self) -> str:
        """This node's name, never empty."""

    @property
    def hub(self) -> HubAddress: ...

    def service(self, namespace: str, name: str) -> ServiceFacts | None:
        """Return the facts of a Service; None if it does not exist."""

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Return a Node's labels; None if it is unknown. Each label that a filter reads is an input of its own."""

    def own_pool(self) -> str:
        """The pool of this node: the hub's option, else the node's label; "" if it is in no pool."""

    def pool_nodes(self, pool: str) -> Set[str] | None:
        """The names of the nodes in a pool, by NodePool.status.nodes, or by node labels where that kind is
        not installed, and this node where its own label names the pool; None if there is no such pool, or
        its status is not written yet. Each node that a filter looks for is an input of its own."""

    def ready_nodes(self, namespace: str, service: str, address_type: str) -> frozenset[str] | None:
        """Return the nodes with a ready endpoint in any EndpointSlice of the Service of that address type.

        None if the hub does not know. Only an ordered preference of topology keys needs this: a Service may have many
        slices, and the choice of "the first key that leaves a ready endpoint" concerns all of them.
        """

    def is_healthy(self, node: str) -> bool:
        """Return False only while the hub's local health source calls the node unhealthy."""

    def pod_reports(self, namespace: str) -> PodReportLister:
        """Return the reports of a namespace, which is empty except in an outage and the moments after it."""

    def selection(self, namespace: str, service: str) -> Selection | None:
        """Return a Service's selection; None if the Service does not exist or is unknown."""

    def first_slice(self, namespace: str, service: str, address_type: str, pod: str) -> str | None:
        """Return the first EndpointSlice, by name, of the Service of that address type, if none of them names this pod.

        None if one does, or if the hub does not know.
        """
