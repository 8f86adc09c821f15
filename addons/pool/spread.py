"""How the followers of a pool spread: over its leaders, and over time where all of them would go to the cloud. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from addons.pool.pool_config import LeaderHub

SPREAD = 10.0
"""Seconds over which a pool of ten followers or more goes to the cloud: a tenth of the pool a second."""


def leader_order(leaders: Iterable[LeaderHub], node: str) -> list[LeaderHub]:
    """The leaders as a node prefers them: by rendezvous hashing, so that a leader that leaves moves its own alone."""
    return sorted(leaders, key=lambda each: _weight(each.node, node), reverse=True)


def cloud_delay(node: str, followers: Collection[str]) -> float:
    """Seconds that a node waits before it begins to read from the cloud, when all followers lose their leaders at once.

    The followers begin one after the other: a tenth of them a second, and one a second where they are fewer than ten.
    A node that does not know the others waits by its own hash.
    """
    if node in followers:
        places = sorted(followers, key=place)
        return places.index(node) * min(1.0, SPREAD / len(places))
    return SPREAD * place(node) / 2**64


def place(node: str) -> int:
    """By what all hubs of a pool put its nodes into the same order, in which the nodes go to the cloud."""
    return _weight("", node)


def _weight(leader: str, node: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{leader}/{node}".encode()).digest()[:8])
