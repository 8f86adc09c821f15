"""HTTP/2 without TLS, by way of h2: how the hub speaks to its own listener, which passes streams on as streams.

So all that the hub asks of a server shares one connection to it. The peer is on this machine: what it sends is taken
as it comes, since it would only be kept on the other side.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from multidict import CIMultiDict

from kube.concurrency.pulse import Pulse
from kube.http.session import CONNECT_TIMEOUT

WINDOW = 2**31 - 1
"""Bytes that the peer may send before they are taken: HTTP/2's largest number, which is no limit here."""
FRAME = 2**17
"""Bytes of the largest frame that the peer may send."""
REMEMBERED = 1000
"""Ended streams that a connection remembers; more are only late frames to tell apart from wrong ones."""
NOT_SENT = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"),
        *("content-length", "host"),
    }
)
"""What HTTP/2 says in its own way (RFC 9113, 8.2.2); `content-length` is the body's that is sent."""

type Fields = list[tuple[bytes, bytes]]


class Http2Session:
    """A `kube.http.session.Session`. Connections are opened as they are needed, and stay."""

    def __init__(self) -> None:
        self._connections: dict[str, list[Connection]] = {}
        self._opening = asyncio.Lock()

    def close(self) -> None:
        """End all connections; what is under way breaks off."""
        for connections in self._connections.values():
            for each in connections:
                each.close()
        self._connections.clear()

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Http2Response]:
        """See `kube.http.session.Session.open`; the URL's scheme is http."""
        deadline = asyncio.get_running_loop().time() + timeout
        base, path = _parts(url)
        fields = _fields(method, base, path, headers, body)
        async with asyncio.timeout_at(deadline):
            connection = await self._connection(base)
        response = connection.send(fields, body or b"", deadline)
        try:
            try:
                await response.begun()
            except TimeoutError:
                # What is behind the peer may be stuck with this connection: only a new one can tell.
                connection.retire()
                raise
            yield response
        finally:
            connection.leave(response)

    async def _connection(self, base: str) -> Connection:
        """One with room, and where there is none a new one."""
        async with self._opening:
            usable = [each for each in self._connections.get(base, ()) if each.is_open]
            self._connections[base] = usable
            for each in usable:
                if each.has_room:
                    return each
            host, _, port = base.rpartition(":")
            async with asyncio.timeout(CONNECT_TIMEOUT):
                made = await connect(host.strip("[]"), int(port))
            usable.append(made)
            return made


class Http2Response:
    """A `kube.http.session.Response`: one stream of a connection."""

    def __init__(self, stream: int, deadline: float) -> None:
        self.stream = stream
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.has_ended = False
        self.error = ""
        self._deadline = deadline
        self._pieces: deque[bytes] = deque()
        self._changed = Pulse()

    async def begun(self) -> None:
        """Return when status and headers are there."""
        while not self.status:
            await self._news()

    async def read(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                chunk = b"".join(self._pieces)
                self._pieces.clear()
                yield chunk
            elif self.has_ended:
                return
            else:
                await self._news()

    def begin(self, fields: Fields) -> None:
        """The answer's head."""
        for name, value in fields:
            if name == b":status":
                self.status = int(value)
            else:
                self.headers.add(name.decode(), value.decode(errors="surrogateescape"))
        self._changed.notify()

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._changed.notify()

    def end(self) -> None:
        self.has_ended = True
        self._changed.notify()

    def fail(self, error: str) -> None:
        """The answer breaks off here, unless it is whole."""
        if not self.has_ended:
            self.error = error
            self._changed.notify()

    async def _news(self) -> None:
        if self.error:
            raise ConnectionResetError(self.error)
        changed = self._changed.wait()
        async with asyncio.timeout_at(self._deadline):
            await changed


class Remembering(H2Connection):
    """h2's connection, which would remember 65,536 ended streams: megabytes that nobody asks for."""

    MAX_CLOSED_STREAMS = REMEMBERED


class Connection(asyncio.Protocol):
    """One connection, and the answers that are under way on it."""

    def __init__(self) -> None:
        self._h2 = Remembering(H2Configuration(client_side=True, header_encoding=None))
        # h2 sends its settings of before unless it takes these for agreed on.
        self._h2.local_settings.initial_window_size = WINDOW
        self._h2.local_settings.max_frame_size = FRAME
        self._h2.local_settings.enable_push = 0
        self._h2.local_settings.acknowledge()
        self._h2.max_inbound_frame_size = FRAME
        self._transport: asyncio.Transport | None = None
        self._under_way: dict[int, Http2Response] = {}
        self._unsent: dict[int, memoryview] = {}
        """Bodies, or what is left of them, that the peer has no room for yet."""
        self._is_ending = False
        self._is_retired = False
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def settled(self) -> None:
        """Return when the peer has said what it takes; OSError where it does not speak HTTP/2."""
        await self._settled

    @property
    def is_open(self) -> bool:
        return not self._is_ending and self._transport is not None

    @property
    def has_room(self) -> bool:
        limit = self._h2.remote_settings.max_concurrent_streams
        return not self._is_retired and len(self._under_way) < limit

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Take no more requests, and end with the last that is under way."""
        self._is_retired = True

    def send(self, fields: Fields, body: bytes, deadline: float) -> Http2Response:
        """Send a request; its answer, which has until the deadline (of the loop's clock)."""
        number = self._h2.get_next_available_stream_id()
        response = self._under_way[number] = Http2Response(number, deadline)
        self._h2.send_headers(number, fields, end_stream=not body)
        if body:
            self._unsent[number] = memoryview(body)
        self._flush()
        return response

    def leave(self, response: Http2Response) -> None:
        """Nobody reads this answer any more."""
        self._under_way.pop(response.stream, None)
        unsent = self._unsent.pop(response.stream, None)
        if self.is_open and not response.error and (unsent is not None or not response.has_ended):
            with contextlib.suppress(ProtocolError):
                self._h2.reset_stream(response.stream, ErrorCodes.CANCEL)
            self._flush()
        if self._is_retired and not self._under_way and self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW - self._h2.inbound_flow_control_window)
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._take(event)
        except (ProtocolError, ValueError) as error:  # ValueError: a status that is no number
            self._end(f"it does not speak HTTP/2: {error}")
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "the connection was closed"))
        self._transport = None

    def _take(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged() if not self._settled.done():
                self._settled.set_result(None)
            case ConnectionTerminated():
                self._end("the connection was closed")
            case DataReceived():
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        response = self._under_way.get(getattr(event, "stream_id", 0))
        if response is None:
            return
        match event:
            case ResponseReceived():
                response.begin(event.headers)
            case DataReceived():
                response.add(event.data)
            case StreamEnded():
                response.end()
            case StreamReset():
                self._unsent.pop(event.stream_id, None)
                response.fail(f"the answer broke off (error {event.error_code})")

    def _end(self, why: str) -> None:
        self._is_ending = True
        if not self._settled.done():
            self._settled.set_exception(ConnectionResetError(why))
        for response in self._under_way.values():
            response.fail(why)
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        for number in list(self._unsent):
            self._send_body(number)
        self._transport.write(self._h2.data_to_send())

    def _send_body(self, number: int) -> None:
        """As much as the peer has room for."""
        left = self._unsent[number]
        while left:
            size = min(
                len(left), self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size
            )
            # Below zero where the peer has made its windows smaller meanwhile (RFC 9113, 6.9.2).
            if size <= 0:
                self._unsent[number] = left
                return
            self._h2.send_data(number, left[:size].tobytes(), end_stream=size == len(left))
            left = left[size:]
        del self._unsent[number]


async def connect(host: str, port: int) -> Connection:
    """A new connection that can be used; OSError where there is none."""
    _, made = await asyncio.get_running_loop().create_connection(Connection, host, port)
    try:
        await made.settled()
    except BaseException:
        made.close()
        raise
    return made


def _parts(url: str) -> tuple[str, str]:
    """Host with port, and path with query."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.port is None:
        raise ValueError(f"{url} is no http:// URL with a port")
    return parts.netloc, url[len("http://") + len(parts.netloc) :] or "/"


def _fields(
    method: str, base: str, path: str, headers: Iterable[tuple[str, str]], body: bytes | None
) -> Fields:
    pseudo = [(":method", method), (":scheme", "http"), (":authority", base), (":path", path)]
    sent = [(name.lower(), value.strip()) for name, value in headers]
    sent = [*pseudo, *((name, value) for name, value in sent if name not in NOT_SENT)]
    if body is not None:
        sent.append(("content-length", str(len(body))))
    return [(name.encode(), value.encode(errors="surrogateescape")) for name, value in sent]
