"""What a filter may ask beyond the object in hand: Services, node labels, pools, health, and the hub's address."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

IPV4 = "IPv4"
IPV6 = "IPv6"
"""The names that Kubernetes gives to address families, in `spec.ipFamilies` and in a slice's
`addressType`."""


def family_of(address: str) -> str:
    """The family of an IP literal."""
    return IPV6 if ":" in address else IPV4


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where pods reach the hub: IP literals, the main one first, and the TLS port."""

    hosts: tuple[str, ...]
    port: int

    def host_of(self, family: str) -> str | None:
        """The first host of that family, None if the hub has none."""
        return next((host for host in self.hosts if family_of(host) == family), None)


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """The part of a Service that decides about its endpoints."""

    annotations: Mapping[str, str]


class Inputs(Protocol):
    """What a filter may ask about the cluster. The hub records each input that a filter asks for, and filters the
    object again when that input changes. So a filter asks only for what decides, and once for each object."""

    @property
    def node_name(self) -> str:
        """This node's name, never empty."""

    @property
    def hub(self) -> HubAddress: ...

    def service(self, namespace: str, name: str) -> ServiceFacts | None:
        """None if there is no such Service."""

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """None if no such Node is known. Each label that a filter reads is an input of its own."""

    def own_pool(self) -> str:
        """The pool of this node: the hub's option, else the node's label; "" = in no pool."""

    def pool_nodes(self, pool: str) -> Set[str] | None:
        """The names of the nodes in a pool, by NodePool.status.nodes, or by node labels where that kind is
        not installed; None if there is no such pool. Each node that a filter looks for is an input of its own."""

    def ready_nodes(self, namespace: str, service: str, address_type: str) -> frozenset[str] | None:
        """The nodes with a ready endpoint in any EndpointSlice of the Service of that address type; None
        where the hub does not know. Only an ordered preference of topology keys asks this: a Service may have many
        slices, and "the first key that leaves a ready endpoint" is a question about all of them."""

    def is_healthy(self, node: str) -> bool:
        """False only while the hub's local health source calls the node unhealthy."""
