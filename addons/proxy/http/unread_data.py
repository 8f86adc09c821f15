"""Bounds what clients of HTTP/2 have asked for and do not read.

mitmproxy reads an answer as fast as its server sends it, and holds what the client's windows have no room for. A client
that opens streams and reads none would have the hub hold all of them. What all clients together have not read is
bounded; beyond the bound the client with the most loses its connection, and a client that reads notices nothing.
"""

from __future__ import annotations

from typing import Protocol

from mitmproxy.proxy.layers.http._http_h2 import BufferedH2Connection

MAX_UNREAD = 32 * 1024 * 1024
"""Bytes that all clients of HTTP/2 together have not read."""


class UnreadClient(Protocol):
    """A client's connection."""

    def give_up(self) -> None:
        """Drop what the client has not read, and end the connection at the next event."""


def unread(connection: BufferedH2Connection) -> int:
    """Bytes of all streams that the peer's windows have no room for."""
    return sum(len(each.data) for buffered in connection.stream_buffers.values() for each in buffered)


class UnreadData:
    """How many bytes each client has not read."""

    def __init__(self, limit: int = MAX_UNREAD) -> None:
        self._limit = limit
        self._sizes: dict[UnreadClient, int] = {}

    @property
    def total(self) -> int:
        return sum(self._sizes.values())

    def hold(self, client: UnreadClient, size: int) -> None:
        """Note a client's bytes, and give up those with the most until the others are within the bound."""
        if not size:
            self._sizes.pop(client, None)
            return
        self._sizes[client] = size
        while self.total > self._limit:
            most = max(self._sizes, key=self._sizes.__getitem__)
            del self._sizes[most]
            most.give_up()


UNREAD = UnreadData()
"""That of this process."""
