"""Deputies: followers that serve their pool in place of a leader that fails.

A follower announces its own peer port in its probes of a leader. The leader's answers name its deputies, so that each
follower knows them before the leader fails. Deputies are the first followers that fall back to the cloud. A follower
that can serve reads only from deputies that precede it in this order, so no two followers read from each other.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Collection, Iterable

from addons.pool.pool_config import parse_leader_hubs
from addons.pool.spread import rank
from kube.peers import LeaderHub, parse_hub_address

MAX_DEPUTIES = 2
"""Deputies of one leader. Each reads all shared resources from the cloud, as a leader does."""
MAX_LENDERS = 8
"""Followers that one leader names as lenders of their links."""
ANY_ADDRESS = "::"
"""The announced address of a follower whose peer port listens on every address. The leader then uses the source address
of the connection."""
ANNOUNCEMENT_TTL = 12.0
"""Seconds after which a leader drops a follower's announcement: the time of three probes."""


class Deputies:
    """The followers of this leader that announced themselves first: its deputies, or the hubs that lend their link."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_DEPUTIES) -> None:
        self._clock = clock
        self._most = most
        self._said: dict[LeaderHub, float] = {}
        """The time of the last announcement of each selected follower, `most` entries at most."""

    def announce(self, node: str, said: str, address: str) -> None:
        """Store a follower's announcement of its peer port, and ignore a malformed one. `address` is the source address
        of the follower's connection."""
        try:
            parsed = parse_hub_address(said)
            hub = LeaderHub(node, str(_plain(address) if parsed.is_unspecified else parsed))
        except ValueError:
            return
        now = self._clock()
        live = {
            deputy: at
            for deputy, at in self._said.items()
            if now - at < ANNOUNCEMENT_TTL and deputy.node != node
        }
        live[hub] = now
        first = sorted(live, key=lambda deputy: rank(deputy.node))[: self._most]
        self._said = {deputy: live[deputy] for deputy in first}

    def named(self, members: Collection[str]) -> str:
        """Format the deputies for a header of the leader's answers. Nodes that have left the pool are omitted."""
        return ",".join(f"{deputy.node}/{deputy.address}" for deputy in self.live if deputy.node in members)

    @property
    def live(self) -> list[LeaderHub]:
        """Return the deputies whose last announcement is not older than ANNOUNCEMENT_TTL."""
        now = self._clock()
        return [deputy for deputy, at in self._said.items() if now - at < ANNOUNCEMENT_TTL]


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address in the form that certificates use."""
    parsed = parse_hub_address(address)
    return parsed.ipv4_mapped or parsed if isinstance(parsed, ipaddress.IPv6Address) else parsed


def parse_deputies(text: str, most: int = MAX_DEPUTIES) -> tuple[LeaderHub, ...]:
    """Parse the deputies, or lenders, that a leader names, up to the bound."""
    return tuple(sorted(set(parse_leader_hubs(text)), key=lambda hub: rank(hub.node))[:most])


def deputies_for(
    node: str, named: Iterable[LeaderHub], members: Collection[str], *, can_serve: bool
) -> list[LeaderHub]:
    """Return the deputies that a node may read from, in the order in which it tries them.

    `can_serve`: whether the node may be a deputy itself. If several deputies have one address, the first is used.
    """
    others = {deputy for deputy in named if deputy.node in members and deputy.node != node}
    able = (other for other in others if not can_serve or rank(other.node) < rank(node))
    deputies: dict[str, LeaderHub] = {}
    for deputy in sorted(able, key=lambda deputy: rank(deputy.node)):
        deputies.setdefault(deputy.address, deputy)
    return list(deputies.values())
