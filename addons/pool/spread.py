"""Spreads the followers of a pool over its leaders, and over time when they fall back to the cloud."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from kube.peers import LeaderHub
from kube.requests.request_info import ResourceType

SPREAD = 10.0
"""Seconds over which a pool of ten followers or more falls back to the cloud: a tenth of the pool each second."""
SHORTEST_WAIT = 0.001
"""Minimum seconds to wait for a slot, or for a leader that becomes usable again."""


class CloudSlot(NamedTuple):
    """The moments at which a node may begin to read from the cloud: once in each period of the wall clock.

    Followers notice at different moments that their leader failed, or that the cloud is back; slots of the wall clock
    keep them apart nevertheless. A wrong clock moves only its own node's slot.
    """

    at: float
    """Seconds from the beginning of a period to the slot."""
    period: float
    """Seconds of a period; 0 if the node may begin at any moment."""

    def wait(self, now: float) -> float:
        """Return the seconds until the next slot; `now` is in Unix seconds."""
        return (self.at - now) % self.period if self.period else 0.0


class CloudSlots:
    """The slots in which this node may begin to read each shared resource from the cloud."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float]) -> None:
        """`clock` is monotonic, `wall_clock` returns Unix seconds."""
        self.slot = CloudSlot(0.0, 0.0)
        self._clock = clock
        self._wall_clock = wall_clock
        self._begin_at: dict[ResourceType, float] = {}

    def begin_at(self, type_: ResourceType, *, at_once: bool) -> float:
        """Return the node's next slot in monotonic seconds: the same one until it is used or missed.

        `at_once`: the node need not wait for its slot.
        """
        if type_ not in self._begin_at:
            wait = 0.0 if at_once else self.slot.wait(self._wall_clock())
            self._begin_at[type_] = self._clock() + wait
        return self._begin_at[type_]

    def mark_used(self, type_: ResourceType) -> None:
        """Record that the node reads the resource from the cloud now, so that it needs no further slot."""
        if type_ in self._begin_at:
            self._begin_at[type_] = -math.inf

    def has_missed(self, type_: ResourceType) -> bool:
        """Whether the slot passed unused, because the reflector was waiting to retry."""
        return -math.inf < self._begin_at.get(type_, math.inf) < self._clock()

    def forget(self, type_: ResourceType) -> None:
        """Drop the slot: the node need not, or cannot, read the resource from the cloud."""
        self._begin_at.pop(type_, None)

    @property
    def next_in(self) -> float:
        """Seconds until the next slot that the node waits for; infinite if there is none."""
        now = self._clock()
        return min((begin - now for begin in self._begin_at.values() if begin > now), default=math.inf)


def leader_order(leaders: Iterable[LeaderHub], node: str) -> list[LeaderHub]:
    """Return the leaders in a node's order of preference, by rendezvous hashing: if a leader fails, only its own
    followers move."""
    return sorted(leaders, key=lambda leader: _weight(leader.node, node), reverse=True)


def cloud_slot(node: str, followers: Collection[str]) -> CloudSlot:
    """Return the slot of a node after its leaders have failed.

    The followers begin one after the other: a tenth of them each second, or one each second if they are fewer than ten.
    A pool's only follower begins at once. A node that does not know the others derives its slot from its own hash.
    """
    if node not in followers:
        return CloudSlot(SPREAD * rank(node) / 2**64, SPREAD)
    ranked = sorted(followers, key=rank)
    period = min(SPREAD, float(len(ranked))) if len(ranked) > 1 else 0.0
    return CloudSlot(ranked.index(node) * period / len(ranked), period)


def rank(node: str) -> int:
    """Return a node's rank in the order of falling back to the cloud; every hub of a pool computes the same."""
    return _weight("", node)


def _weight(leader: str, node: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{leader}/{node}".encode()).digest()[:8])
