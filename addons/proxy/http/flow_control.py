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

LARGEST_READ = 64 * 1024
"""Bytes that asyncio reads from a server at once (its own: 256 KiB); mitmproxy takes as many from asyncio."""


class ByteReader(Protocol):
    """What mitmproxy uses of a stream."""

    async def read(self, n: int) -> bytes:
        """Up to `n` bytes; none at the end."""


class PausingReader:
    """Reads only while there is room for what it reads, and lets asyncio read no further meanwhile."""

    def __init__(
        self,
        reader: ByteReader,
        is_full: Callable[[], bool],
        moved: asyncio.Event,
        transport: asyncio.ReadTransport | None = None,
    ) -> None:
        self._reader = reader
        self._is_full = is_full
        self._moved = moved
        self._transport = transport

    async def read(self, n: int) -> bytes:
        if self._is_full():
            await self._wait()
        return await self._reader.read(n)

    async def _wait(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
        try:
            while self._is_full():
                self._moved.clear()
                await self._moved.wait()
        finally:
            if self._transport is not None:
                self._transport.resume_reading()


class Pausing(LiveConnectionHandler):
    """A connection handler whose connections are read while there is room."""

    _client_moved: asyncio.Event | None = None
    """Set at each event of the client: it may have room now for what servers send."""
    _server_moved: asyncio.Event | None = None
    """Set at each event of a server: it may have room now for what the client sends."""

    async def handle_connection(self, connection: Connection) -> None:
        # What this frame named would live as long as the exception that may end the connection.
        self._let_read(connection)
        await super().handle_connection(connection)

    def _let_read(self, connection: Connection) -> None:
        """Put a pausing reader in the place of the connection's own."""
        if self._client_moved is None or self._server_moved is None:
            self._client_moved, self._server_moved = asyncio.Event(), asyncio.Event()
        moved = self._server_moved if connection is self.client else self._client_moved
        transport = self.transports[connection]
        assert transport.reader is not None
        writer = transport.writer
        socket = writer.transport if isinstance(writer, asyncio.StreamWriter) else None
        assert socket is None or isinstance(socket, asyncio.Transport)
        if socket is not None and connection is not self.client:
            socket.max_size = LARGEST_READ  # type: ignore[attr-defined]  # of asyncio's selector transports
        reader = PausingReader(transport.reader, lambda: self._is_full(connection), moved, socket)
        transport.reader = reader  # type: ignore[assignment]  # mitmproxy calls nothing but `read`

    async def server_event(self, event: events.Event) -> None:
        await super().server_event(event)
        if self._client_moved is None or self._server_moved is None:
            return
        if not isinstance(event, events.ConnectionEvent) or event.connection is self.client:
            self._client_moved.set()
        else:
            self._server_moved.set()

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
