"""What one address may have of a listener, over all its connections: requests under way, and bytes that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary

from mitmproxy import connection

MAX_ALL_UNREAD = 4 * 1024 * 1024
"""Bytes that all client connections may hold; beyond, addresses that hold more than an even share lose streams."""
FAIR_UNREAD = 1024 * 1024
"""Bytes that the connections from one address may hold whatever others do."""
MAX_PEER_STREAMS = 4_000
"""Requests under way from one address to one listener, over all its connections."""


class ClientLayer(Protocol):
    """The layer of HTTP of a client's connection."""

    @property
    def streams(self) -> Mapping[int, object]:
        """The requests under way."""

    @property
    def held(self) -> int:
        """Bytes that the hub holds because the client does not read."""


class PeerConnections:
    """The connections from one address to one listener; their layers keep it."""

    def __init__(self) -> None:
        self.layers: WeakSet[ClientLayer] = WeakSet()
        self._certain = 0
        """How many more requests fit even if none ends. To count all of them at each request would cost more than some
        requests do."""

    def begin(self) -> None:
        """Note a further request."""
        self._certain -= 1

    @property
    def has_room(self) -> bool:
        """Whether the address may have its latest request."""
        if self._certain < 0:
            self._certain = MAX_PEER_STREAMS - sum(len(each.streams) for each in self.layers)
        return self._certain >= 0

    @property
    def held(self) -> int:
        """Bytes that the hub holds for clients that do not read."""
        return sum(each.held for each in self.layers)

    @property
    def holds_too_much(self) -> bool:
        """Whether all addresses together leave too much unread, and this one more than an even share of that."""
        if self.held <= FAIR_UNREAD:
            return False
        held = [each.held for each in _peers.values()]
        holding = sum(1 for each in held if each)
        return sum(held) > MAX_ALL_UNREAD and self.held * holding > MAX_ALL_UNREAD


_peers: WeakValueDictionary[str, PeerConnections] = WeakValueDictionary()


def peer_of(client: connection.Client) -> PeerConnections:
    """Those of a client's address and listener."""
    name = f"{client.sockname[1]} {client.peername[0]}"
    peer = _peers.get(name)
    if peer is None:
        peer = _peers[name] = PeerConnections()
    return peer
