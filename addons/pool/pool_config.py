"""The ConfigMap `leader-hub-<pool>`, its default, and the role that it assigns to a node. Pure.

The keys and their formats are OpenYurt's: `leaders` is `node/address,…`, `pool-scoped-metadata` is
`group/version/resource,…`, and `interconnectivity` and `enable-leader-election` are `true` or `false`. The keys
`relay`, `deputies` and `hubs` are this project's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from addons.rules.shared_kinds import SHARED
from kube.bounds import reached
from kube.peers import MAX_HUBS, LeaderHub, parse_leader_hub
from kube.requests.request_info import ResourceType

MAX_LEADERS = 100
"""Leaders that a hub accepts from a ConfigMap: each may cause a label of metrics and a task that probes it."""

VERSION = re.compile(r"v[0-9]{1,2}((alpha|beta)[0-9]{1,2})?")
"""The pattern of an API version, as kube-apiserver accepts it."""


class Role(StrEnum):
    NONE = "none"
    """The hub reads shared resources from the cloud, and serves them to no other hub."""
    LEADER = "leader"
    """The hub reads shared resources from the cloud, and serves them to the pool."""
    FOLLOWER = "follower"
    """The hub reads shared resources from a leader."""


class PoolConfig(NamedTuple):
    """A pool's configuration for its hubs. The default shares nothing."""

    leaders: tuple[LeaderHub, ...] = ()
    scope: tuple[ResourceType, ...] = ()
    """The resources that the pool shares: Services, Endpoints and EndpointSlices as far as the ConfigMap names them,
    and the resources that the rules add."""
    is_shared: bool = False
    """Whether the pool elects leaders and its nodes reach each other."""
    relay: str = ""
    """The relays of the pool, in the format of `addons.link.servers.parse_relays`."""

    has_deputies: bool = True
    """Whether followers may serve the pool if its leaders fail."""
    hubs: tuple[LeaderHub, ...] = ()
    """The hubs with an open peer port. In an outage they and the leaders exchange reports on their pods."""

    def shares(self, type_: ResourceType) -> bool:
        """Whether the pool shares a resource, in any version."""
        return self.is_shared and any(shared.group_resource == type_.group_resource for shared in self.scope)


NO_POOL = PoolConfig()
FIRST_SCOPE = (ResourceType("", "v1", "services"), ResourceType("discovery.k8s.io", "v1", "endpointslices"))
"""The resources that a pool shares by default, while its ConfigMap is unknown."""


def first_config(leaders: Iterable[LeaderHub]) -> PoolConfig:
    """Return the configuration of a pool with the operator's leaders, used until its ConfigMap is known. Without
    leaders it shares nothing."""
    named = tuple(sorted(leaders)[:MAX_LEADERS])
    return PoolConfig(named, FIRST_SCOPE, is_shared=True) if named else NO_POOL


def relay_config(node: str, further: Iterable[ResourceType] = ()) -> PoolConfig:
    """Return the configuration of a relay, which leads for every node and shares all that a pool may share."""
    scope = tuple(ResourceType(group, "v1", resource) for group, resource in SHARED)
    return PoolConfig((LeaderHub(node, ""),), (*scope, *further), is_shared=True, has_deputies=False)


def parse_pool_config(data: Mapping[str, str] | None, further: Iterable[ResourceType] = ()) -> PoolConfig:
    """Parse the ConfigMap's data; None for a pool without a ConfigMap. Malformed entries are ignored.

    `further` are the resources that the rules add to the standard ones of every pool.
    """
    if data is None:
        return NO_POOL
    switches = (data.get("interconnectivity"), data.get("enable-leader-election"))
    leaders = sorted(set(parse_leader_hubs(data.get("leaders", ""))))
    if len(leaders) > MAX_LEADERS:
        reached("leaders")
    hubs = sorted(set(parse_leader_hubs(data.get("hubs", ""))))
    if len(hubs) > MAX_HUBS:
        reached("hubs of a pool")
    return PoolConfig(
        tuple(leaders[:MAX_LEADERS]),
        tuple(dict.fromkeys((*_scope(data.get("pool-scoped-metadata", "")), *further))),
        is_shared=switches == ("true", "true"),
        relay=data.get("relay", ""),
        has_deputies=data.get("deputies") != "false",
        hubs=tuple(hubs[:MAX_HUBS]),
    )


def role_of(config: PoolConfig, node: str, *, can_lead: bool, can_follow: bool) -> Role:
    """Return the role of a node. `can_lead`: its peer port is open; `can_follow`: it has a client certificate.

    A leader whose peer port is closed follows the other leaders.
    """
    if not config.is_shared or not config.leaders:
        return Role.NONE
    if can_lead and any(leader.node == node for leader in config.leaders):
        return Role.LEADER
    others = any(leader.node != node for leader in config.leaders)
    return Role.FOLLOWER if can_follow and others else Role.NONE


def parse_leader_hubs(text: str) -> Iterator[LeaderHub]:
    """Parse `node/address,…`. Malformed entries are ignored."""
    for entry in text.split(","):
        with suppress(ValueError):
            yield parse_leader_hub(entry)


def _scope(text: str) -> Iterator[ResourceType]:
    for entry in text.split(","):
        parts = entry.strip().split("/")
        if len(parts) == 3 and (parts[0], parts[2]) in SHARED and VERSION.fullmatch(parts[1]):
            yield ResourceType(*parts)
