"""An HTTP/2 server that handles each request as a test specifies."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from hyperframe.frame import GoAwayFrame

from kube.concurrency.notifier import Notifier
from tests.kube.support.cleartext import CleartextSession

SMALL = 1000
"""The initial window of the peer in bytes."""


@dataclass(slots=True)
class Asked:
    """A request, and methods to answer it."""

    fields: dict[str, str]
    _conn: H2Connection
    _stream: int
    _writer: asyncio.StreamWriter
    body: bytes = b""
    reset: asyncio.Event = field(default_factory=asyncio.Event)
    """True if the client no longer wants the response."""

    def head(self, status: int = 200, *headers: tuple[str, str]) -> None:
        self._conn.send_headers(self._stream, [(":status", str(status)), *headers])
        self._flush()

    def data(self, piece: bytes, *, end: bool = False) -> None:
        self._conn.send_data(self._stream, piece, end_stream=end)
        self._flush()

    def break_off(self) -> None:
        self._conn.reset_stream(self._stream)
        self._flush()

    def end_connection(self) -> None:
        self._conn.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
        self._flush()

    def go_away(self, after: int) -> None:
        """Accept no more requests, and answer those up to this stream."""
        self.say(GoAwayFrame(last_stream_id=after).serialize())

    def refuse(self) -> None:
        """Report that the stream was not processed."""
        self._conn.reset_stream(self._stream, ErrorCodes.REFUSED_STREAM)
        self._flush()

    @property
    def stream(self) -> int:
        return self._stream

    @property
    def window(self) -> int:
        """Return the bytes of the response that the client accepts now."""
        return int(self._conn.local_flow_control_window(self._stream))

    def say(self, raw: bytes) -> None:
        self._writer.write(raw)

    def hang_up(self) -> None:
        self._writer.transport.abort()

    def _flush(self) -> None:
        self._writer.write(self._conn.data_to_send())


class Peer:
    """A server that calls `act` with each complete request; `limit` is the maximum of streams per connection."""

    def __init__(
        self,
        act: Callable[[Asked], None],
        limit: int = 100,
        at_head: Callable[[Asked], None] = lambda _: None,
    ) -> None:
        """`at_head` is called with each request before its body has arrived."""
        self._act = act
        self._at_head = at_head
        self._limit = limit
        self._tasks: list[asyncio.Task[None]] = []
        self.asked: list[Asked] = []
        self._changed = Notifier()
        self.connections = self.closed = 0
        self.url = ""

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield
        await asyncio.gather(*self._tasks)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[CleartextSession]:
        """Return a session while the peer serves."""
        async with self.serve():
            session = CleartextSession()
            try:
                yield session
            finally:
                session.close()

    async def was_asked(self, count: int) -> None:
        """Return when that many requests have arrived."""
        while len(self.asked) < count:
            await self._changed.wait()

    async def has_window(self, asked: Asked) -> None:
        """Return when the client accepts more of a response."""
        while not asked.window:
            await self._changed.wait()

    async def were_closed(self, count: int) -> None:
        """Return when that many connections have closed."""
        while self.closed < count:
            await self._changed.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        conn = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        conn.local_settings.max_concurrent_streams = self._limit
        conn.local_settings.initial_window_size = SMALL
        conn.local_settings.acknowledge()
        conn.initiate_connection()
        open_: dict[int, Asked] = {}
        data = b""
        while True:
            for event in conn.receive_data(data):
                match event:
                    case RequestReceived():
                        fields = {name.decode(): value.decode() for name, value in event.headers}
                        assert len(fields) == len(event.headers)
                        open_[event.stream_id] = Asked(fields, conn, event.stream_id, writer)
                        self.asked.append(open_[event.stream_id])
                        self._changed.notify()
                        self._at_head(open_[event.stream_id])
                    case DataReceived():
                        open_[event.stream_id].body += event.data
                        conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case StreamEnded():
                        self._act(open_[event.stream_id])
                    case WindowUpdated():
                        self._changed.notify()
                    case StreamReset():
                        open_[event.stream_id].reset.set()
            writer.write(conn.data_to_send())
            try:
                data = await reader.read(65536)
            except ConnectionError:
                data = b""
            if not data:
                break
        writer.close()
        self.closed += 1
        self._changed.notify()
