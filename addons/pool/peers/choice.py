"""The choice of the server for a shared resource: a leader, a deputy, a relay, or the cloud. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from addons.pool.peers.peer import PeerHub


class Choice(NamedTuple):
    """The selected server, or the time to wait for a better one."""

    peer: PeerHub | None
    """The selected peer; None for the cloud."""
    wait: float = 0.0
    """Seconds after which to choose again; 0: use the server now."""


CLOUD = Choice(None)


def choose(order: Sequence[PeerHub], now: float, *, cloud_is_up: bool, cloud_from: float) -> Choice:
    """Choose the first usable peer that has the cloud, else the cloud, else the peer that lost the cloud last.

    `order` is the list of peers by preference. Before `cloud_from` (monotonic seconds) the cloud is not chosen, so that
    the followers of a pool fall back to it one after the other.
    """
    usable = [peer for peer in order if peer.is_usable(now)]
    fresh = next((peer for peer in usable if not peer.age), None)
    if fresh is not None:
        return Choice(fresh)
    if cloud_is_up and now >= cloud_from:
        return CLOUD
    if usable:
        return Choice(min(usable, key=lambda peer: peer.age))
    if not cloud_is_up:
        return CLOUD
    back = (peer.usable_from for peer in order if not peer.failure)
    return Choice(None, min([cloud_from, *back]) - now)
