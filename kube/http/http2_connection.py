"""One HTTP/2 connection without TLS, by h2, and the responses that are under way on it.

The peer is the hub's own listener, on this machine. So the connection's window has the largest size, and only the
window of a stream bounds what waits here: a packed watch comes faster than its reader applies what it unpacks to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable

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
from hyperframe.frame import Frame, GoAwayFrame
from multidict import CIMultiDict

from kube.concurrency.pulse import Pulse
from kube.http.http2_frames import HeadEncoder, check_incoming
from kube.http.session import read_body

WINDOW = 2**31 - 1
"""Bytes that the peer may send before they are acknowledged: HTTP/2's largest number, which is no limit here."""
MAX_UNTAKEN = 1024 * 1024
"""Bytes of one response that wait for its reader. The peer stops there, and so does the server behind it."""
CHUNK = 64 * 1024
"""Bytes of a response that its reader is given at once, where more wait."""
MAX_FRAME = 2**17
"""Bytes of the largest frame that the peer may send."""
MAX_CLOSED_STREAMS = 1000
"""Ended streams that a connection remembers, to tell late frames from wrong ones."""

type HeaderFields = list[tuple[bytes, bytes]]


class NotProcessed(ConnectionResetError):
    """The peer did not process the request (RFC 9113, 8.7): it can be sent again, whatever its method."""


class Http2Response:
    """A `kube.http.session.Response`: one stream of a connection."""

    def __init__(self, stream: int, deadline: float, taken: Callable[[int, int], None]) -> None:
        """`taken` is called with the stream and how many bytes of its window the reader has made room for."""
        self.stream = stream
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.has_ended = False
        self.error: ConnectionResetError | None = None
        self._deadline = deadline
        self._pieces: deque[tuple[bytes, int]] = deque()
        """With the bytes of the stream's window that each has."""
        self._taken = taken
        self._changed = Pulse()

    async def begun(self) -> None:
        """Return when status and headers have come."""
        while not self.status:
            await self._next_event()

    async def read(self, limit: int) -> bytes:
        return await read_body(self.chunks(), limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                yield self._next_chunk()
            elif self.has_ended:
                return
            else:
                await self._next_event()

    def begin(self, fields: HeaderFields) -> None:
        """Take status and headers."""
        for name, value in fields:
            if name == b":status":
                self.status = int(value)
            else:
                self.headers.add(name.decode(), value.decode(errors="surrogateescape"))
        self._changed.notify()

    def add(self, piece: bytes, size: int) -> None:
        """Take a piece that has `size` bytes of the stream's window, with its padding."""
        self._pieces.append((piece, size))
        self._changed.notify()

    def let_go(self) -> None:
        """Drop what waits for the reader, and make room for as much."""
        if self._pieces:
            self._taken(self.stream, sum(size for _, size in self._pieces))
            self._pieces.clear()

    def end(self) -> None:
        self.has_ended = True
        self._changed.notify()

    def fail(self, error: ConnectionResetError) -> None:
        """Break the response off, unless it is whole."""
        if not self.has_ended and self.error is None:
            self.error = error
            self._changed.notify()

    def _next_chunk(self) -> bytes:
        """Take pieces of CHUNK bytes, or somewhat more."""
        chunk: list[bytes] = []
        length = taken = 0
        while self._pieces and length < CHUNK:
            piece, size = self._pieces.popleft()
            chunk.append(piece)
            length += len(piece)
            taken += size
        self._taken(self.stream, taken)
        return b"".join(chunk)

    async def _next_event(self) -> None:
        if self.error is not None:
            raise self.error
        changed = self._changed.wait()
        async with asyncio.timeout_at(self._deadline):
            await changed


class PatientH2Connection(H2Connection):
    """h2's connection with two changes.

    It remembers MAX_CLOSED_STREAMS ended streams instead of 65,536, which would be megabytes. And it stays open when
    the peer sends GOAWAY: h2 would refuse the rest of the responses that the peer still sends (RFC 9113, 6.8).
    """

    MAX_CLOSED_STREAMS = MAX_CLOSED_STREAMS

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        event.error_code = frame.error_code
        event.last_stream_id = frame.last_stream_id
        return [], [event]


class Connection(asyncio.Protocol):
    """One connection, and the responses that are under way on it."""

    def __init__(self) -> None:
        self._h2 = PatientH2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._h2.encoder = HeadEncoder()
        # h2 would send its former settings unless these count as acknowledged.
        self._h2.local_settings.initial_window_size = MAX_UNTAKEN
        self._h2.local_settings.max_frame_size = MAX_FRAME
        self._h2.local_settings.enable_push = 0
        self._h2.local_settings.acknowledge()
        self._h2.max_inbound_frame_size = MAX_FRAME
        self._transport: asyncio.Transport | None = None
        self._under_way: dict[int, Http2Response] = {}
        self._unsent: dict[int, memoryview] = {}
        """Request bodies, or what is left of them, that the peer has no room for yet; by stream."""
        self._is_ending = False
        self._is_retired = False
        self._settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def settled(self) -> None:
        """Return when the peer has sent its settings; OSError where it does not speak HTTP/2."""
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
        """Take no more requests, and close after the last response that is under way."""
        self._is_retired = True

    def send(self, fields: HeaderFields, body: bytes, deadline: float) -> Http2Response:
        """Send a request. Its response must end by the deadline, a time of the loop's clock."""
        number = self._h2.get_next_available_stream_id()
        response = self._under_way[number] = Http2Response(number, deadline, self._make_room)
        self._h2.send_headers(number, fields, end_stream=not body)
        if body:
            self._unsent[number] = memoryview(body)
        self._flush()
        return response

    def release(self, response: Http2Response) -> None:
        """Drop a response that the caller reads no further."""
        self._under_way.pop(response.stream, None)
        response.let_go()
        unsent = self._unsent.pop(response.stream, None)
        if self.is_open and response.error is None and (unsent is not None or not response.has_ended):
            with contextlib.suppress(ProtocolError):
                self._h2.reset_stream(response.stream, ErrorCodes.CANCEL)
            self._flush()
        self._close_if_retired()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW - self._h2.inbound_flow_control_window)
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._h2.receive_data(data):
                self._handle(event)
            check_incoming(self._h2, MAX_FRAME, MAX_HEAD)
        except (ProtocolError, ValueError) as error:  # ValueError: a status that is no number
            self._end(f"it does not speak HTTP/2: {error}")
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "the connection was closed"))
        self._transport = None

    def _handle(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged() if not self._settled.done():
                self._settled.set_result(None)
            case ConnectionTerminated():
                self._retire_after(event.last_stream_id or 0)
                if event.error_code != ErrorCodes.NO_ERROR:
                    self._end(f"the peer closed the connection (error {event.error_code})")
        response = self._under_way.get(getattr(event, "stream_id", 0))
        if response is None:
            if isinstance(event, DataReceived):
                self._make_room(event.stream_id, event.flow_controlled_length)
            return
        match event:
            case ResponseReceived():
                response.begin(event.headers)
            case DataReceived():
                response.add(event.data, event.flow_controlled_length)
            case StreamEnded():
                response.end()
            case StreamReset():
                self._unsent.pop(event.stream_id, None)
                if event.error_code == ErrorCodes.REFUSED_STREAM and not response.status:
                    response.fail(NotProcessed("the peer refused the stream"))
                else:
                    response.fail(ConnectionResetError(f"the response broke off (error {event.error_code})"))

    def _make_room(self, stream: int, size: int) -> None:
        """Let the peer send so much more, on this stream and in all."""
        if self.is_open:
            with contextlib.suppress(ProtocolError):  # the connection has ended for h2
                self._h2.acknowledge_received_data(size, stream)
            self._flush()

    def _retire_after(self, last_stream: int) -> None:
        """The peer closes the connection. It answers streams up to `last_stream`, and has not processed later ones."""
        self.retire()
        for response in list(self._under_way.values()):
            if response.stream > last_stream:
                self._unsent.pop(response.stream, None)
                response.fail(NotProcessed("the peer takes no more requests on this connection"))
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._is_retired and not self._under_way and self._transport is not None:
            self._transport.close()

    def _end(self, why: str) -> None:
        self._is_ending = True
        if not self._settled.done():
            self._settled.set_exception(ConnectionResetError(why))
        for response in self._under_way.values():
            response.fail(ConnectionResetError(why))
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        for number in list(self._unsent):
            self._send_body(number)
        self._transport.write(self._h2.data_to_send())

    def _send_body(self, number: int) -> None:
        """Send as much of a request's body as the peer has room for."""
        left = self._unsent[number]
        while left:
            size = min(
                len(left), self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size
            )
            # A window is below zero where the peer has made it smaller meanwhile (RFC 9113, 6.9.2).
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


MAX_HEAD = 256 * 1024
"""Bytes of the frames of one head, as they come."""
