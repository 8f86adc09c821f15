"""What the ConfigMap `leader-hub-<pool>` says, and the role that it gives a node. Pure.

The keys and their formats are OpenYurt's: `leaders` is `node/address,…`, `pool-scoped-metadata` is
`group/version/resource,…`, and `interconnectivity` and `enable-leader-election` are `true` or `false`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from addons.upstream.servers import Server
from addons.views.serving import SHARED
from kube.bounds import reached
from kube.requests.request_info import ResourceType

MAX_LEADERS = 100
"""Leaders that a hub takes from a ConfigMap: each may become a label of metrics and a task that probes it."""


class Role(StrEnum):
    """What a hub is in its pool."""

    NONE = "none"
    """The hub reads shared resources from the cloud, and serves them to nobody."""
    LEADER = "leader"
    """The hub reads shared resources from the cloud, and serves them to the pool."""
    FOLLOWER = "follower"
    """The hub reads shared resources from a leader."""


@dataclass(frozen=True, slots=True, order=True)
class LeaderHub:
    """A node that the pool's ConfigMap names, and the IP address of its hub."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """A pool as its hubs see it. The default is a pool that shares nothing."""

    leaders: tuple[LeaderHub, ...] = ()
    scope: tuple[ResourceType, ...] = ()
    """What the pool shares, of what a pool may share."""
    is_shared: bool = False
    """The nodes of the pool reach each other, and the pool elects leaders."""
    relay: str = ""
    """The relays of the pool, as `addons.upstream.servers.parse_relays` reads them."""

    def shares(self, group: str, resource: str) -> bool:
        """Whether the pool shares a resource."""
        return self.is_shared and any((each.group, each.resource) == (group, resource) for each in self.scope)


NOTHING_SHARED = PoolConfig()
FIRST_SCOPE = (ResourceType("", "v1", "services"), ResourceType("discovery.k8s.io", "v1", "endpointslices"))
"""What a pool shares whose ConfigMap is not known: what pools share unless told otherwise."""


def first_config(leaders: Iterable[Server]) -> PoolConfig:
    """The pool of the leaders that the operator names, until its ConfigMap is known; without any nothing is shared."""
    named = tuple(sorted(LeaderHub(each.node, each.host) for each in leaders))[:MAX_LEADERS]
    return PoolConfig(named, FIRST_SCOPE, is_shared=True) if named else NOTHING_SHARED


def parse_pool_config(data: Mapping[str, str] | None) -> PoolConfig:
    """The ConfigMap's data as a value; None is a pool without a ConfigMap. What is no entry is left out."""
    if data is None:
        return NOTHING_SHARED
    switches = (data.get("interconnectivity"), data.get("enable-leader-election"))
    leaders = sorted(set(_leaders(data.get("leaders", ""))))
    if len(leaders) > MAX_LEADERS:
        reached("leaders")
    return PoolConfig(
        tuple(leaders[:MAX_LEADERS]),
        tuple(dict.fromkeys(_scope(data.get("pool-scoped-metadata", "")))),
        is_shared=switches == ("true", "true"),
        relay=data.get("relay", ""),
    )


def role_of(config: PoolConfig, node: str, *, can_lead: bool, can_follow: bool) -> Role:
    """The role of a node. `can_lead`: its peer port serves; `can_follow`: it has a client certificate to show.

    A leader that cannot serve follows the others.
    """
    if not config.is_shared or not config.leaders:
        return Role.NONE
    if can_lead and any(each.node == node for each in config.leaders):
        return Role.LEADER
    others = any(each.node != node for each in config.leaders)
    return Role.FOLLOWER if can_follow and others else Role.NONE


def _leaders(text: str) -> Iterator[LeaderHub]:
    for entry in text.split(","):
        node, _, address = entry.strip().partition("/")
        try:
            yield LeaderHub(node, str(ipaddress.ip_address(address))) if node else _no_entry()
        except ValueError:
            continue


def _no_entry() -> LeaderHub:
    raise ValueError("a leader needs the name of its node")


def _scope(text: str) -> Iterator[ResourceType]:
    for entry in text.split(","):
        parts = entry.strip().split("/")
        if len(parts) == 3 and (parts[0], parts[2]) in SHARED:
            yield ResourceType(*parts)
