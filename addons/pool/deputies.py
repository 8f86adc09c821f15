"""Deputies: followers that serve their pool in place of a leader that fails.

A follower says in its probes of a leader where its own peer port is open. The leader's answers name its deputies, so
that each follower knows them before the leader fails. Of all followers that can serve, the deputies come first in the
order in which followers go to the cloud. A follower that can serve reads only from deputies that come before it, so no
two of them read from each other.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Collection, Iterable

from addons.pool.pool_config import LeaderHub, parse_hub_address, parse_leader_hubs
from addons.pool.spread import place

MAX_DEPUTIES = 2
"""Deputies of one leader. Each reads all that the pool shares, as a leader does."""
MAX_LENDERS = 8
"""Followers that one leader names as having a way to the cloud to lend."""
ANY_ADDRESS = "::"
"""What a follower says whose peer port is open on every address: the leader takes the one from which it calls."""
LIFE = 12.0
"""Seconds for which a leader believes what a follower said: three probes."""


class Deputies:
    """The first of those followers of this leader that announce themselves: its deputies, or hubs that lend their way
    to the cloud."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MAX_DEPUTIES) -> None:
        self._clock = clock
        self._most = most
        self._said: dict[LeaderHub, float] = {}
        """When each of the first followers last said so. There are never more than `most`."""

    def announce(self, node: str, said: str, address: str) -> None:
        """Take what a follower says of its peer port; `address` is where it calls from. Nonsense counts for nothing."""
        try:
            told = parse_hub_address(said)
            found = LeaderHub(node, str(_plain(address) if told.is_unspecified else told))
        except ValueError:
            return
        now = self._clock()
        live = {each: at for each, at in self._said.items() if now - at < LIFE and each.node != node}
        live[found] = now
        first = sorted(live, key=lambda each: place(each.node))[: self._most]
        self._said = {each: live[each] for each in first}

    def named(self, members: Collection[str]) -> str:
        """Them as the leader's answers name them, of the nodes that are in the pool now."""
        return ",".join(f"{each.node}/{each.address}" for each in self.live if each.node in members)

    @property
    def live(self) -> list[LeaderHub]:
        """Those that said so a short while ago."""
        now = self._clock()
        return [each for each, at in self._said.items() if now - at < LIFE]


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address of a connection, as a certificate names it."""
    found = parse_hub_address(address)
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def parse_deputies(text: str, most: int = MAX_DEPUTIES) -> tuple[LeaderHub, ...]:
    """The deputies, or lenders, that a leader names, and no more than it may."""
    return tuple(sorted(set(parse_leader_hubs(text)), key=lambda each: place(each.node))[:most])


def deputies_for(
    node: str, named: Iterable[LeaderHub], members: Collection[str], *, can_serve: bool
) -> list[LeaderHub]:
    """Those deputies that a node may read from, in the order in which it asks them.

    `can_serve`: the node may be a deputy itself. Of those at one address the first counts.
    """
    others = {each for each in named if each.node in members and each.node != node}
    able = (each for each in others if not can_serve or place(each.node) < place(node))
    found: dict[str, LeaderHub] = {}
    for each in sorted(able, key=lambda each: place(each.node)):
        found.setdefault(each.address, each)
    return list(found.values())
