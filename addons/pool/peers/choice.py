"""The choice of where to read a shared resource: among leaders, deputies, relays, and the cloud. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from addons.pool.peers.peer import PeerHub


class Choice(NamedTuple):
    """Where to read from, or how long to wait for a better answer."""

    peer: PeerHub | None
    """None is the cloud."""
    wait: float = 0.0
    """Seconds after which to choose again; 0: go there now."""


CLOUD = Choice(None)


def choose(order: Sequence[PeerHub], now: float, *, cloud_is_up: bool, cloud_from: float) -> Choice:
    """A peer that has the cloud, then the cloud, then the peer that lost the cloud last.

    `order` has the peers in the order of preference. Before `cloud_from` (monotonic seconds) the hub does not go to
    the cloud, so that the followers of a pool go one after the other.
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
