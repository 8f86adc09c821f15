"""Pauses reading from one side of mitmproxy while the other side does not read.

mitmproxy waits for its sockets' buffers, and no further: what waits for a window of HTTP/2 it collects without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from mitmproxy.connection import Connection
from mitmproxy.proxy import events, mode_servers
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.proxy.server import LiveConnectionHandler

from addons.proxy.http.cancelled_ends import WholeEnds
from addons.proxy.http.gathered_writes import Gathering
from addons.proxy.http.http_layer import layer_of
from addons.proxy.patches import Patch


class ByteReader(Protocol):
    """What mitmproxy uses of a stream."""

    async def read(self, n: int) -> bytes:
        """Up to `n` bytes; none at the end."""


class PausingReader:
    """Reads only while there is room for what it reads."""

    def __init__(self, reader: ByteReader, is_full: Callable[[], bool], moved: asyncio.Event) -> None:
        self._reader = reader
        self._is_full = is_full
        self._moved = moved

    async def read(self, n: int) -> bytes:
        while self._is_full():
            self._moved.clear()
            await self._moved.wait()
        return await self._reader.read(n)


class Pausing(LiveConnectionHandler):
    """A connection handler whose connections are read while there is room."""

    _moved: asyncio.Event | None = None
    """Set at each event: there may be room now."""

    async def handle_connection(self, connection: Connection) -> None:
        self._moved = moved = self._moved or asyncio.Event()
        transport = self.transports[connection]
        assert transport.reader is not None
        reader = PausingReader(transport.reader, lambda: self._is_full(connection), moved)
        transport.reader = reader  # type: ignore[assignment]  # mitmproxy calls nothing but `read`
        await super().handle_connection(connection)

    async def server_event(self, event: events.Event) -> None:
        await super().server_event(event)
        if self._moved is not None:
            self._moved.set()

    def _is_full(self, connection: Connection) -> bool:
        layer = layer_of(self.client.id)
        return layer is not None and layer.is_full(connection)


class PausingHandler(Pausing, Gathering, WholeEnds, ProxyConnectionHandler):
    """mitmproxy's own handler, pausing, with gathered writes and whole ends."""


PATCHES = (
    Patch(
        mode_servers,
        "ProxyConnectionHandler",
        PausingHandler,
        "(master, r, w, options, mode)",
        "mitmproxy reads on while a client of HTTP/2 does not",
        "tests/addons/proxy/http/test_flow_control.py::test_without_a_pause_what_a_client_leaves_unread_grows",
    ),
)
