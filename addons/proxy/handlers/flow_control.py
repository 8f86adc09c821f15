"""Pauses reading from one side of mitmproxy while the other side does not read.

mitmproxy waits for its sockets' buffers, and no further: what waits for a window of HTTP/2 it collects without end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mitmproxy.connection import Connection, Server
from mitmproxy.proxy import events
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from addons.proxy.handlers.ending_handler import EndingHandler
from addons.proxy.handlers.gathered_writes import Gathering, GatheringWriter
from addons.proxy.http.direct_frames import DirectFrames
from addons.proxy.http.http_connections import STREAMS_PER_CLIENT
from addons.proxy.http.http_layer import UnreadGrew, layer_of
from addons.proxy.http.own_answers import players
from addons.proxy.http.request_stream import RequestStream
from addons.requests.answers import ClientLeft

LARGEST_READ = 64 * 1024
"""Bytes that are read from a server at once (asyncio's own: 256 KiB)."""
LEAST_READ = 16 * 1024
"""Bytes that are read where there is room for a few: smaller reads would cost more than their memory is worth."""
READS_OF_CLIENT = 1024 * 1024
"""Bytes that are read at once from all servers of one client: a connection beyond sixteen gets a share of them."""


_handlers: WeakValueDictionary[str, Pausing] = WeakValueDictionary()


def handler_of(client_id: str) -> Pausing | None:
    """The handler of a client's connection; None when that has ended."""
    return _handlers.get(client_id)


class ByteReader(Protocol):
    """What mitmproxy uses of a stream."""

    async def read(self, n: int) -> bytes:
        """Up to `n` bytes; none at the end."""


class PausingReader:
    """Reads only while there is room for what it reads, and lets asyncio read no further meanwhile."""

    def __init__(
        self, reader: ByteReader, room: Callable[[], int], moved: asyncio.Event, most: int = LARGEST_READ
    ) -> None:
        """`room` gives the bytes that there is room for, `moved` is set when there may be more; `most` bound a read."""
        self._most = most
        self.inner = reader
        self._room = room
        self._moved = moved

    async def read(self, n: int) -> bytes:
        while (room := self._room()) <= 0:
            if isinstance(self.inner, asyncio.StreamReader):
                pause(self.inner)
            self._moved.clear()
            await self._moved.wait()
        return await self.inner.read(min(n, self._most, max(room, LEAST_READ)))

    def let_go(self) -> None:
        """Drop what was read ahead, and what names the connection: it has ended."""
        if isinstance(self.inner, asyncio.StreamReader):
            self.inner._buffer.clear()  # type: ignore[attr-defined]  # of asyncio's stream readers
            if (error := self.inner.exception()) is not None:
                # The reader keeps the error of a connection that its client has reset, and the frames through which
                # it was raised name the reader, the transport and the handler: 60 objects until a full collection.
                error.__traceback__ = None


def pause(reader: asyncio.StreamReader) -> None:
    """Have asyncio read no further until the reader is read from, as when the reader is full.

    A transport that somebody else pauses and resumes would be read without end: the reader takes it for paused still.
    """
    transport = reader._transport  # type: ignore[attr-defined]  # asyncio says so in no other way
    if isinstance(transport, asyncio.Transport) and not reader._paused:  # type: ignore[attr-defined]  # asyncio says so in no other way
        transport.pause_reading()
        reader._paused = True  # type: ignore[attr-defined]  # asyncio says so in no other way


def share_of(connections: int) -> int:
    """Bytes that one of so many connections of a client reads at once."""
    return min(LARGEST_READ, max(LEAST_READ, READS_OF_CLIENT // connections))


def read_at_most(reader: asyncio.StreamReader, most: int) -> None:
    """Have asyncio read so many bytes at once, and hold no more than two reads of less than LARGEST_READ."""
    reader._transport.max_size = most  # type: ignore[attr-defined]  # asyncio says so in no other way
    if most < LARGEST_READ:
        reader._limit = most // 2  # type: ignore[attr-defined]  # asyncio says so in no other way


class Pausing(Gathering):
    """A connection handler whose connections are read while there is room."""

    _client_moved: asyncio.Event | None = None
    """Set at each event of the client: it may have room now for what servers send."""
    _server_moved: asyncio.Event | None = None
    """Set at each event of a server: it may have room now for what the client sends."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # mitmproxy's own limit of 5 for each address would stall the sixth watch of a client of HTTP/2 on HTTP/1.1.
        self.max_conns = defaultdict(lambda: asyncio.Semaphore(STREAMS_PER_CLIENT))
        self._readers: dict[Connection, PausingReader] = {}
        players[self.client.id] = _handlers[self.client.id] = self

    async def handle_connection(self, connection: Connection) -> None:
        # What this frame named would live as long as the exception that may end the connection.
        self._let_read(connection)
        try:
            await super().handle_connection(connection)
        finally:
            self._readers.pop(connection).let_go()

    def _let_read(self, connection: Connection) -> None:
        """Put a pausing reader in the place of the connection's own."""
        if self._client_moved is None or self._server_moved is None:
            self._client_moved, self._server_moved = asyncio.Event(), asyncio.Event()
        moved = self._server_moved if connection is self.client else self._client_moved
        transport = self.transports[connection]
        assert transport.reader is not None
        most = LARGEST_READ
        if isinstance(transport.reader, asyncio.StreamReader) and connection is not self.client:
            most = share_of(len(self.transports))
            read_at_most(transport.reader, most)
        reader = PausingReader(transport.reader, lambda: self._room(connection), moved, most)
        self._readers[connection] = reader
        transport.reader = reader  # type: ignore[assignment]  # mitmproxy calls nothing but `read`

    async def send_piece(self, stream: RequestStream, data: bytes) -> None:
        """Send a piece of a response's body, and wait while the client does not read. ClientLeft when it has left.

        The piece passes those layers alone that change it: see `HubHttpLayer.body_bytes`.
        """
        transport, layer = self.transports.get(self.client), layer_of(self.client.id)
        if transport is None or transport.writer is None or transport.writer.is_closing() or layer is None:
            raise ClientLeft
        self.timeout_watchdog.register_activity()
        # Nothing is awaited here, as in `server_event`: what two tasks send to one connection may not mix.
        transport.writer.write(b"".join(layer.body_bytes(stream, data)))
        self.flush()
        if layer.holds_too_much:
            await self.server_event(UnreadGrew())
        try:
            await transport.writer.drain()
        except ConnectionError:
            raise ClientLeft from None

    async def wait_for_room(self, stream: RequestStream) -> None:
        """Return when the client has read enough of what it was sent before."""
        layer = layer_of(self.client.id)
        while layer is not None and layer.is_behind(stream.stream_id):
            assert self._client_moved is not None
            self._client_moved.clear()
            await self._client_moved.wait()

    def direct_frames(self, stream: RequestStream) -> DirectFrames | None:
        """The shorter way of the pieces of such a body; None for a client of HTTP/1.1."""
        layer, transport = layer_of(self.client.id), self.transports.get(self.client)
        found = layer.of_http2 if layer is not None else None
        if found is None or transport is None or not isinstance(transport.writer, GatheringWriter):
            return None
        if stream.stream_id not in found[0].streams:
            return None
        return DirectFrames(
            stream, *found, transport.writer.transport, self.timeout_watchdog.register_activity
        )

    async def server_event(self, event: events.Event) -> None:
        await super().server_event(event)
        if self._client_moved is None or self._server_moved is None:
            return
        if not isinstance(event, events.ConnectionEvent) or event.connection is self.client:
            self._client_moved.set()
        if not isinstance(event, events.ConnectionEvent) or event.connection is not self.client:
            self._server_moved.set()

    def _room(self, connection: Connection) -> int:
        layer = layer_of(self.client.id)
        return layer.room(connection) if layer is not None else LARGEST_READ


class PausingHandler(Pausing, EndingHandler, ProxyConnectionHandler):
    """mitmproxy's own handler, pausing, with gathered writes and whole ends."""


def cut(matches: Callable[[Server], bool]) -> int:
    """Close all upstream connections that match; their number."""
    closed = 0
    for handler in list(_handlers.values()):
        layer = layer_of(handler.client.id)
        for conn, transport in list(handler.transports.items()):
            inner = layer.beyond.get(conn, conn) if layer is not None else conn
            if isinstance(inner, Server) and transport.handler is not None and matches(inner):
                transport.handler.cancel("cut by the hub")
                closed += 1
    return closed


def close_client(client_id: str, why: str) -> bool:
    """Close a client's connection; whether there was one."""
    handler = handler_of(client_id)
    transport = handler.transports.get(handler.client) if handler is not None else None
    if transport is None or transport.handler is None:
        return False
    transport.handler.cancel(why)
    return True
