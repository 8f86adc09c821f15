"""The ConfigMap `leader-hub-<pool>`, its default, and the role that it gives a node. Pure.

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
"""Leaders that a hub takes from a ConfigMap: each may become a label of metrics and a task that probes it."""

VERSION = re.compile(r"v[0-9]{1,2}((alpha|beta)[0-9]{1,2})?")
"""A version of an API, as kube-apiserver takes it."""


class Role(StrEnum):
    NONE = "none"
    """The hub reads shared resources from the cloud, and serves them to no other hub."""
    LEADER = "leader"
    """The hub reads shared resources from the cloud, and serves them to the pool."""
    FOLLOWER = "follower"
    """The hub reads shared resources from a leader."""


class PoolConfig(NamedTuple):
    """A pool as its hubs see it. The default is a pool that shares nothing."""

    leaders: tuple[LeaderHub, ...] = ()
    scope: tuple[ResourceType, ...] = ()
    """The resources that the pool shares: of the three, those that the ConfigMap names, and those that the rules
    add."""
    is_shared: bool = False
    """The nodes of the pool reach each other, and the pool elects leaders."""
    relay: str = ""
    """The relays of the pool, as `addons.link.servers.parse_relays` reads them."""

    has_deputies: bool = True
    """Followers may serve the pool if its leaders fail."""
    hubs: tuple[LeaderHub, ...] = ()
    """The hubs whose peer port is open: without a cloud they report their pods to each other, and so do the leaders."""

    def shares(self, type_: ResourceType) -> bool:
        """Whether the pool shares a resource, in whatever version."""
        return self.is_shared and any(shared.group_resource == type_.group_resource for shared in self.scope)


NOTHING_SHARED = PoolConfig()
FIRST_SCOPE = (ResourceType("", "v1", "services"), ResourceType("discovery.k8s.io", "v1", "endpointslices"))
"""The resources that a pool shares whose ConfigMap is not known: the default of pools."""


def first_config(leaders: Iterable[LeaderHub]) -> PoolConfig:
    """The pool of the operator's leaders, until its ConfigMap is known; without any nothing is shared."""
    named = tuple(sorted(leaders)[:MAX_LEADERS])
    return PoolConfig(named, FIRST_SCOPE, is_shared=True) if named else NOTHING_SHARED


def relay_config(node: str, further: Iterable[ResourceType] = ()) -> PoolConfig:
    """The pool of a relay, which leads it for any nodes: it shares all that a pool may share."""
    scope = tuple(ResourceType(group, "v1", resource) for group, resource in SHARED)
    return PoolConfig((LeaderHub(node, ""),), (*scope, *further), is_shared=True, has_deputies=False)


def parse_pool_config(data: Mapping[str, str] | None, further: Iterable[ResourceType] = ()) -> PoolConfig:
    """The ConfigMap's data as a value; None is a pool without a ConfigMap. Malformed entries are left out.

    `further` are the resources that the rules have each pool share.
    """
    if data is None:
        return NOTHING_SHARED
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
    """The role of a node. `can_lead`: its peer port serves; `can_follow`: it has a client certificate to show.

    A leader that cannot serve follows the others.
    """
    if not config.is_shared or not config.leaders:
        return Role.NONE
    if can_lead and any(leader.node == node for leader in config.leaders):
        return Role.LEADER
    others = any(leader.node != node for leader in config.leaders)
    return Role.FOLLOWER if can_follow and others else Role.NONE


def parse_leader_hubs(text: str) -> Iterator[LeaderHub]:
    """The hubs of `node/address,…`; malformed entries are left out."""
    for entry in text.split(","):
        with suppress(ValueError):
            yield parse_leader_hub(entry)


def _scope(text: str) -> Iterator[ResourceType]:
    for entry in text.split(","):
        parts = entry.strip().split("/")
        if len(parts) == 3 and (parts[0], parts[2]) in SHARED and VERSION.fullmatch(parts[1]):
            yield ResourceType(*parts)
