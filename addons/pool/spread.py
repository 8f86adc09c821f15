"""How the followers of a pool spread: over its leaders, and over time where all of them would go to the cloud."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

SPREAD = 10.0
"""Seconds over which a pool of ten followers or more goes to the cloud: a tenth of the pool a second."""
SHORTEST_WAIT = 0.001
"""Seconds: the shortest wait for a slot, or for a leader that may be used again."""


class CloudSlot(NamedTuple):
    """The moments at which a node may begin to read from the cloud: once in each period of the wall clock.

    Followers notice at different moments that their leader is gone, or that the cloud is back; slots by the wall
    clock keep them apart nevertheless. A wrong clock moves only its own node's slot.
    """

    at: float
    """Seconds from the beginning of each period to the slot."""
    period: float
    """Seconds; 0 where the node may begin at any moment."""

    def wait(self, now: float) -> float:
        """Seconds until the next slot; `now` is in Unix seconds."""
        return (self.at - now) % self.period if self.period else 0.0


class CloudSlots:
    """When this node may begin to read each shared resource from the cloud."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        """`clock` is monotonic, `wall_clock` shows Unix seconds."""
        self.slot = CloudSlot(0.0, 0.0)
        self._clock = clock
        self._wall_clock = wall_clock
        self._begin_at: dict[ResourceType, float] = {}

    def begin_at(self, type_: ResourceType, *, at_once: bool) -> float:
        """Return the node's next slot in monotonic seconds; the same one until it is used or missed.

        `at_once`: the node need not wait for its slot.
        """
        if type_ not in self._begin_at:
            wait = 0.0 if at_once else self.slot.wait(self._wall_clock())
            self._begin_at[type_] = self._clock() + wait
        return self._begin_at[type_]

    def mark_used(self, type_: ResourceType) -> None:
        """Note that the node reads from the cloud from now on, and needs no other slot for it."""
        if type_ in self._begin_at:
            self._begin_at[type_] = -math.inf

    def has_missed(self, type_: ResourceType) -> bool:
        """Whether the slot passed unused, while the reflector waited to retry."""
        return -math.inf < self._begin_at.get(type_, math.inf) < self._clock()

    def forget(self, type_: ResourceType) -> None:
        """Release the slot: the node need not read from the cloud, or cannot."""
        self._begin_at.pop(type_, None)

    @property
    def next_in(self) -> float:
        """Seconds until the next slot that the node waits for; infinite without one."""
        now = self._clock()
        return min((begin - now for begin in self._begin_at.values() if begin > now), default=math.inf)


def leader_order(leaders: Iterable[LeaderHub], node: str) -> list[LeaderHub]:
    """The leaders as a node prefers them: by rendezvous hashing, so that a leader that leaves moves its own alone."""
    return sorted(leaders, key=lambda leader: _weight(leader.node, node), reverse=True)


def cloud_slot(node: str, followers: Collection[str]) -> CloudSlot:
    """When a node may begin to read from the cloud after its leaders have failed.

    The followers begin one after the other: a tenth of them a second, and one a second where they are fewer than ten.
    A follower without another begins at once. A node that does not know the others takes its slot by its own hash.
    """
    if node not in followers:
        return CloudSlot(SPREAD * rank(node) / 2**64, SPREAD)
    ranked = sorted(followers, key=rank)
    period = min(SPREAD, float(len(ranked))) if len(ranked) > 1 else 0.0
    return CloudSlot(ranked.index(node) * period / len(ranked), period)


def rank(node: str) -> int:
    """Rank a node for the order in which nodes fall back to the cloud; every hub of a pool computes the same."""
    return _weight("", node)


def _weight(leader: str, node: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{leader}/{node}".encode()).digest()[:8])
