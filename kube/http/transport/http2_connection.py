"""One HTTP/2 connection to a server, by h2, and the responses that are under way on it.

The connection's window has the largest size, and only the window of a stream bounds what waits here, so that no
response waits for the reader of another one.
"""

from __future__ import annotations

import asyncio
import contextlib

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from hyperframe.frame import Frame, GoAwayFrame

from kube.http.transport.http2_frames import HeadEncoder, check_incoming
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.streamed_response import MAX_UNTAKEN, NotProcessed, StreamedResponse

WINDOW = 2**31 - 1
"""Bytes that the peer may send before they are acknowledged: HTTP/2's largest number, which is no limit here."""
STREAMS_AT_FIRST = 100
"""Streams on a connection whose peer has not sent its limit yet: the default of kube-apiserver and of Go."""
SILENCE = 58.0
"""Seconds without a word of the peer after which it is sent a ping, where a response is under way, and the connection
is closed where none is. As many seconds later the peer counts as gone that has not answered. Routers forget connections
that are silent for minutes."""
MAX_FRAME = 2**17
"""Bytes of the largest frame that the peer may send."""
MAX_HEAD = 256 * 1024
"""Bytes of the frames of one head, as they come."""
MAX_CLOSED_STREAMS = 1000
"""Ended streams that a connection remembers, to tell late frames from wrong ones."""


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


class Http2Connection(asyncio.Protocol):
    """A `kube.http.transport.connection_pool.Connection`, and the responses that are under way on it."""

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
        self._under_way: dict[int, StreamedResponse] = {}
        self._unsent: dict[int, memoryview] = {}
        """Request bodies, or what is left of them, that the peer has no room for yet; by stream."""
        self._is_ending = False
        self._is_retired = False
        self._limit = STREAMS_AT_FIRST
        self._timer: asyncio.TimerHandle | None = None
        self._was_heard = True
        """Since the timer was set."""
        self._is_asked = False
        """A ping was sent since the peer was last heard."""
        self._pongs: dict[bytes, tuple[float, asyncio.Future[float]]] = {}
        """When each ping was sent, and who waits for its answer, by what the ping says."""
        self._pings = 0

    @property
    def is_open(self) -> bool:
        return not self._is_ending and self._transport is not None and not self._transport.is_closing()

    @property
    def has_room(self) -> bool:
        return not self._is_retired and len(self._under_way) < self._limit

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Take no more requests, and close after the last response that is under way."""
        self._is_retired = True

    def ping(self) -> asyncio.Future[float]:
        loop = asyncio.get_running_loop()
        self._pings += 1
        said, pong = self._pings.to_bytes(8), loop.create_future()
        self._pongs[said] = loop.time(), pong
        pong.add_done_callback(lambda _: self._pongs.pop(said, None))
        self._h2.ping(said)
        self._flush()
        return pong

    def send(self, fields: HeaderFields, body: bytes, deadline: float) -> StreamedResponse:
        """Send a request. Its response must end by the deadline, a time of the loop's clock."""
        number = self._h2.get_next_available_stream_id()
        response = self._under_way[number] = StreamedResponse(number, deadline, self._make_room)
        self._h2.send_headers(number, fields, end_stream=not body)
        if body:
            self._unsent[number] = memoryview(body)
        self._flush()
        return response

    def release(self, response: StreamedResponse) -> None:
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
        self._timer = asyncio.get_running_loop().call_later(SILENCE, self._look)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW - self._h2.inbound_flow_control_window)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        try:
            for event in self._h2.receive_data(data):
                self._handle(event)
            check_incoming(self._h2, MAX_FRAME, MAX_HEAD)
        except (ProtocolError, ValueError) as error:  # ValueError: see `_status_of`
            self._end(f"it does not speak HTTP/2: {error}")
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "the connection was closed"))
        self._transport = None
        self._h2._frame_dispatch_table.clear()  # h2's methods, which refer to h2: 75 objects until a full collection
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Ping a peer that has been silent, or end its connection."""
        if not self.is_open:
            return
        if self._was_heard:
            self._is_asked = False
        elif not self._under_way:
            self.close()
        elif self._is_asked:
            self._end("the peer has not answered a ping")
            self.close()
        else:
            self._is_asked = True
            self._h2.ping(bytes(8))
            self._flush()
        self._was_heard = False
        self._timer = asyncio.get_running_loop().call_later(SILENCE, self._look)

    def _handle(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                self._limit = self._h2.remote_settings.max_concurrent_streams
            case PingAckReceived() if event.ping_data in self._pongs:
                sent, pong = self._pongs.pop(event.ping_data)
                if not pong.done():
                    pong.set_result(asyncio.get_running_loop().time() - sent)
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
                response.begin(*_status_of(event.headers))
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
        for response in self._under_way.values():
            response.fail(ConnectionResetError(why))
        for _, pong in list(self._pongs.values()):
            if not pong.done():
                pong.set_exception(ConnectionResetError(why))
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


def _status_of(fields: HeaderFields) -> tuple[int, HeaderFields]:
    """The status, and the fields that are headers. ValueError for a status that is no number."""
    others = [each for each in fields if each[0] != b":status"]
    return int(dict(fields)[b":status"]), others
