"""Deputies: followers that serve their pool in place of a leader that fails.

A follower announces its own peer port in its probes of a leader. The leader's answers name its deputies, so that each
follower knows them before the leader fails. Of all followers that can serve, the deputies come first in the order in
which followers change to the cloud. A follower that can serve reads only from deputies that come before it, so no two
of them read from each other.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Collection, Iterable

from addons.pool.pool_config import parse_leader_hubs
from addons.pool.spread import rank
from kube.peers import LeaderHub, parse_hub_address

MAX_DEPUTIES = 2
"""Deputies of one leader. Each reads all that the pool shares, as a leader does."""
MAX_LENDERS = 8
"""Followers that one leader names as lenders of their link."""
ANY_ADDRESS = "::"
"""The address of a follower whose peer port is open on every address: the leader takes the one from which it calls."""
LIFE = 12.0
"""Seconds for which a leader believes a follower's announcement: three probes."""


class Deputies:
    """The first of this leader's followers that announce themselves: its deputies, or hubs that lend their link to the
    cloud."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_DEPUTIES) -> None:
        self._clock = clock
        self._most = most
        self._said: dict[LeaderHub, float] = {}
        """The time of the last announcement of each of the first followers. There are never more than `most`."""

    def announce(self, node: str, said: str, address: str) -> None:
        """Store a follower's announcement of its peer port; `address` is where it connects from. Malformed ones are
        ignored."""
        try:
            parsed = parse_hub_address(said)
            hub = LeaderHub(node, str(_plain(address) if parsed.is_unspecified else parsed))
        except ValueError:
            return
        now = self._clock()
        live = {deputy: at for deputy, at in self._said.items() if now - at < LIFE and deputy.node != node}
        live[hub] = now
        first = sorted(live, key=lambda deputy: rank(deputy.node))[: self._most]
        self._said = {deputy: live[deputy] for deputy in first}

    def named(self, members: Collection[str]) -> str:
        """Format them for the headers of the leader's answers; only nodes that are in the pool now."""
        return ",".join(f"{deputy.node}/{deputy.address}" for deputy in self.live if deputy.node in members)

    @property
    def live(self) -> list[LeaderHub]:
        """The deputies that reported a short while ago."""
        now = self._clock()
        return [deputy for deputy, at in self._said.items() if now - at < LIFE]


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address of a connection, as a certificate names it."""
    parsed = parse_hub_address(address)
    return parsed.ipv4_mapped or parsed if isinstance(parsed, ipaddress.IPv6Address) else parsed


def parse_deputies(text: str, most: int = MAX_DEPUTIES) -> tuple[LeaderHub, ...]:
    """Parse the deputies, or lenders, that a leader names, up to the bound."""
    return tuple(sorted(set(parse_leader_hubs(text)), key=lambda hub: rank(hub.node))[:most])


def deputies_for(
    node: str, named: Iterable[LeaderHub], members: Collection[str], *, can_serve: bool
) -> list[LeaderHub]:
    """The deputies that a node may read from, in the order in which it asks them.

    `can_serve`: the node may be a deputy itself. Of those at one address the first counts.
    """
    others = {deputy for deputy in named if deputy.node in members and deputy.node != node}
    able = (other for other in others if not can_serve or rank(other.node) < rank(node))
    deputies: dict[str, LeaderHub] = {}
    for deputy in sorted(able, key=lambda deputy: rank(deputy.node)):
        deputies.setdefault(deputy.address, deputy)
    return list(deputies.values())
