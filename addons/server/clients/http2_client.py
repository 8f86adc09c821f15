"""A client's HTTP/2 connection, by h2, with one task for each stream.

A stream's flow-control window opens when the server, or the hub, has consumed its bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from h2.utilities import HeaderValidationFlags, validate_headers
from mitmproxy import connection, http

from addons.requests.answers import ClientLeft
from addons.server.clients.client_connection import ClientConnection
from addons.server.clients.http1_client import TRAILERS
from addons.server.limits.http2_frames import Frames, FrameTooLarge, HeadEncoder
from addons.server.limits.request_head import MAX_HEADERS
from addons.server.messages import WITHOUT_BODY, error_body, request_of_fields
from addons.server.request import AnswerFields, Serve, ServedRequest
from addons.telemetry import metrics
from kube.http.transport.request_fields import CONNECTION_HEADERS

STREAMS_PER_CLIENT = 1_000
"""Maximum concurrent streams, mostly watches, of one client connection."""
STREAM_WINDOW = 128 * 1024
"""Bytes that a client may send on a stream before the receiver consumes any. More would only be buffered in the hub,
which is close to the client.
"""
CONNECTION_WINDOW = 2**31 - 1
"""Flow-control window of the whole connection, as large as possible: the windows of its streams suffice."""
FIRST_WINDOW = 2**16 - 1
"""The initial flow-control window of HTTP/2, in bytes."""
MAX_CLOSED = 1_000
"""Maximum closed streams that h2 remembers for a connection."""
STREAM_OVERHEAD = 4 * 1024
"""Bytes counted for a stream with unread answer bytes, in addition to these bytes: h2's state of the stream."""
LARGEST_HEADER_LIST = 4 * MAX_HEADERS
"""Bytes of headers, as HTTP/2 counts them, above which the connection closes; smaller excesses get a Status."""
DATA_FRAME_SIZE = 16 * 1024 - 9
"""Maximum bytes of a DATA frame: with its header it fits one TLS record, and every peer accepts it."""

SETTINGS = {
    SettingCodes.ENABLE_PUSH: 0,
    SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_PER_CLIENT,
    SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    SettingCodes.MAX_HEADER_LIST_SIZE: LARGEST_HEADER_LIST,
}
CONFIG = H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_inbound_headers=False,  # `_request_of` validates: h2 would close the connection with all streams
    normalize_inbound_headers=False,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
REQUEST_HEAD = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)
"""Flags with which h2's validation expects the head of a request."""


class Framing(H2Connection):
    """h2's state of a connection, with few closed streams and a bounded header encoder."""

    MAX_CLOSED_STREAMS = MAX_CLOSED

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.encoder = HeadEncoder()
        self.local_settings = Settings(client=False, initial_values=SETTINGS)
        self.decoder.max_header_list_size = LARGEST_HEADER_LIST


class Http2(ClientConnection):
    """Serves the streams of one connection."""

    REQUEST_OVERHEAD = STREAM_OVERHEAD
    _is_initiated = False

    def __init__(self, client: connection.Client, serve: Serve) -> None:
        super().__init__(client, serve)
        self.h2 = Framing()
        self._frames = Frames()
        self._streams: dict[int, Http2Request] = {}

    @property
    def requests(self) -> Iterable[Http2Request]:
        return self._streams.values()

    @property
    def waits_since(self) -> None:
        """None: an incomplete message is bounded in size, and delays no other stream."""
        return None

    # -- input ------------------------------------------------------------------------------------------------------

    def handle(self) -> bool:
        has_more = False
        try:
            if not self._is_initiated:
                self._initiate()
            data, has_more = self._frames.next_frames(self._input)
            for event in self._merged(self.h2.receive_data(data)) if data else ():
                self._handle_event(event)
        except (ProtocolError, FrameTooLarge):
            self.send_output()
            self._input.clear()
            self.close()
            return False
        self.send_output()
        return has_more

    def _initiate(self) -> None:
        self._is_initiated = True
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(CONNECTION_WINDOW - FIRST_WINDOW)

    def send_output(self) -> None:
        """Write the bytes that h2 has prepared."""
        self.write(self.h2.data_to_send())

    def _merged(self, events: Iterable[Event]) -> Iterable[Event]:
        """Yield the events, with all window updates of the connection replaced by one wake-up of its streams at the
        end.
        """
        can_send = False
        for event in events:
            if isinstance(event, RemoteSettingsChanged) or (
                isinstance(event, WindowUpdated) and not event.stream_id
            ):
                can_send = True
            else:
                yield event
        if can_send:
            self.wake()

    def _handle_event(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._begin(event)
            case DataReceived():
                request = self._streams.get(event.stream_id)
                if request is not None:
                    request.received(bytes(event.data), event.flow_controlled_length)
                else:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case StreamEnded():
                if (request := self._streams.get(event.stream_id)) is not None:
                    request.inbox.end()
            case WindowUpdated():
                if (request := self._streams.get(event.stream_id)) is not None:
                    self.wake(request)
            case StreamReset():
                if (request := self._streams.get(event.stream_id)) is not None:
                    request.is_over = True
                    request.leave()
            case TrailersReceived():
                self._refuse_trailers(event.stream_id)
            case ConnectionTerminated():
                self.close()

    def _begin(self, event: RequestReceived) -> None:
        self.has_served = True
        try:
            head = _request_of(event)
        except (ProtocolError, ValueError) as error:
            metrics.REQUESTS_REFUSED.labels("400").inc()
            self._refuse_malformed(event, f"the head of the request is malformed: {error}")
            return
        if event.stream_id not in self.h2.streams:
            return  # the client has reset the stream since
        request = Http2Request(self, head, event.stream_id, has_body=event.stream_ended is None)
        self._streams[event.stream_id] = request
        if event.stream_ended is not None:
            request.inbox.has_ended = True
        request.start(self._serve)

    def _answer(self, number: int, why: str, *, is_head: bool, is_last: bool = True) -> None:
        """Refuse a request for which no flow exists. Do nothing if the client has reset the stream."""
        headers = [(b":status", b"400"), (b"content-type", b"application/json")]
        with contextlib.suppress(ProtocolError):
            self.h2.send_headers(number, headers, end_stream=is_head and is_last)
            if not is_head:
                self.h2.send_data(number, error_body(400, why), end_stream=is_last)

    def _refuse_malformed(self, event: RequestReceived, why: str) -> None:
        """Send the reason, then reset the stream with PROTOCOL_ERROR (RFC 9113, 8.1.1)."""
        number = event.stream_id
        self._answer(number, why, is_head=(b":method", b"HEAD") in event.headers, is_last=False)
        with contextlib.suppress(ProtocolError):
            self.h2.reset_stream(number, ErrorCodes.PROTOCOL_ERROR)

    def _refuse_trailers(self, number: int) -> None:
        metrics.REQUESTS_REFUSED.labels("400").inc()
        request = self._streams.get(number)
        if request is None or request.is_over:
            return
        if not request.has_begun:
            self._answer(number, TRAILERS, is_head=request.is_head)
            request.has_begun = request.is_over = True
        request.leave(TRAILERS)

    # -- the end

    def request_done(self, request: ServedRequest) -> None:
        """Close the stream when its task ends. Reset it if the answer or the request is incomplete (RFC 9113, 8.1)."""
        assert isinstance(request, Http2Request)
        if self._streams.pop(request.number, None) is None or self.transport is None:
            return
        request.acknowledge(0)
        if not request.is_over:
            request.reset(ErrorCodes.INTERNAL_ERROR)
        elif not request.inbox.has_ended:
            request.reset(ErrorCodes.NO_ERROR)
        self.send_output()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._streams.clear()


def _request_of(event: RequestReceived) -> http.Request:
    """Parse and validate a request's head. ProtocolError or ValueError if it is malformed (RFC 9113, 8.1.1)."""
    for _ in validate_headers(event.headers, REQUEST_HEAD):
        pass  # the generator validates each header as it yields it
    # h2 compares the length only with a body that is there. A server of HTTP/1.1 would take the next request for the
    # body.
    lengths = [value for name, value in event.headers if name == b"content-length"]
    if event.stream_ended is not None and any(length.strip(b"0") for length in lengths):
        raise ValueError("the request has a Content-Length, but no body")
    if len(lengths) > 1:
        raise ValueError("the request has two lengths")
    return request_of_fields([(bytes(name), bytes(value)) for name, value in event.headers])


class Http2Request(ServedRequest):
    """A request whose answer is sent in HTTP/2 frames."""

    connection: Http2

    def __init__(self, connection: Http2, head: http.Request, number: int, *, has_body: bool) -> None:
        super().__init__(connection, head, has_body=has_body)
        self.number = number
        self._h2 = connection.h2
        self._stream = connection.h2.streams[number]
        self._unacknowledged = 0
        """Bytes of the stream's window that the hub has consumed and not yet acknowledged."""
        self._may_continue = head.headers.get("expect", "").lower() == "100-continue"

    # -- the body

    def received(self, piece: bytes, size: int) -> None:
        """Queue a received piece. `size` is its size in the stream's window, padding included."""
        self._unacknowledged += size - len(piece)
        if piece:
            self.inbox.put(piece)

    async def read(self) -> bytes:
        if self._may_continue and not self.inbox.size and not self.inbox.has_ended:
            self._may_continue = False
            self._send_headers([(b":status", b"100")], is_last=False)
            self.connection.send_output()
        self.acknowledge(STREAM_WINDOW // 4)
        piece = await self.inbox.get()
        self._unacknowledged += len(piece)
        return piece

    def acknowledge(self, at_least: int) -> None:
        """Open the stream's window by the consumed bytes if they exceed `at_least`. With 0, drop and acknowledge unread
        bytes too.
        """
        if not at_least:
            self._unacknowledged += self.inbox.clear()
        if self._unacknowledged > at_least:
            size, self._unacknowledged = self._unacknowledged, 0
            with contextlib.suppress(ProtocolError):
                self._h2.acknowledge_received_data(size, self.number)
            self.connection.send_output()

    # -- the answer

    def _send_headers(self, fields: AnswerFields, *, is_last: bool) -> None:
        self.check()
        try:
            self._h2.send_headers(self.number, [*fields], end_stream=is_last)
        except ProtocolError:
            raise ClientLeft from None
        self.is_over = self.is_over or is_last

    def _send_head(self, status: int, fields: AnswerFields, *, is_last: bool) -> None:
        lower = [(name.lower(), value) for name, value in fields]
        head = [
            (b":status", b"%d" % status),
            *(field for field in lower if field[0] not in CONNECTION_HEADERS),
        ]
        self._send_headers(head, is_last=is_last)
        self.has_begun = True

    def send_head(self, status: int, fields: AnswerFields) -> None:
        self._send_head(status, fields, is_last=False)
        self.connection.send_output()

    @property
    def window(self) -> int:
        """Bytes that the client's flow-control windows accept now."""
        return min(self._stream.outbound_flow_control_window, self._h2.outbound_flow_control_window)

    def can_send(self, size: int) -> bool:
        connection = self.connection
        if connection.transport is None or connection.is_full or self.why_left:
            return False
        if self.is_over or self._unsent:
            return False
        return size <= self.window

    def send_now(self, data: bytes) -> None:
        """Send DATA frames (RFC 9113, 6.1) without h2: on an open stream they change only the two windows."""
        if self.is_head or not data:
            return
        self._stream.outbound_flow_control_window -= len(data)
        self._h2.outbound_flow_control_window -= len(data)
        number = self.number.to_bytes(4)
        for at in range(0, len(data), DATA_FRAME_SIZE):
            piece = data[at : at + DATA_FRAME_SIZE]
            self.connection.write(b"%b\x00\x00%b%b" % (len(piece).to_bytes(3), number, piece))

    async def send(self, data: bytes) -> None:
        self.check()
        if self.is_head:
            return
        at, connection = 0, self.connection
        while at < len(data):
            connection.flush_if_large()
            size = 0 if connection.is_full else min(self.window, len(data) - at)
            if size > 0:
                self.send_now(data[at : at + size])
                at += size
                continue
            self.count_waiting(len(data) - at)
            await connection.wait_for_space(self)
        if self._unsent:
            self.count_waiting(0)

    async def writable(self) -> None:
        self.check()
        self.connection.flush_if_large()
        while self.connection.is_full or self.window <= 0 or self.connection.is_behind:
            await self.connection.wait_for_space(self)

    def end(self, trailers: AnswerFields = ()) -> None:
        if trailers:
            self._send_headers([(name.lower(), value) for name, value in trailers], is_last=True)
        else:
            self.check()
            try:
                self._h2.end_stream(self.number)
            except ProtocolError:
                raise ClientLeft from None
            self.is_over = True
        self.connection.send_output()

    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        has_length = any(name.lower() == b"content-length" for name, _ in fields)
        if status not in WITHOUT_BODY and not has_length and not (self.is_head and not body):
            fields = [*fields, (b"content-length", b"%d" % len(body))]
        self._send_head(status, fields, is_last=self.is_head or not body)
        self.connection.send_output()
        if not self.is_over:
            await self.send(body)
            self.end()

    def abort(self) -> None:
        if not self.is_over:
            self.reset(ErrorCodes.INTERNAL_ERROR)
            self.connection.send_output()

    def reset(self, code: ErrorCodes) -> None:
        self.is_over = True
        with contextlib.suppress(ProtocolError):
            self._h2.reset_stream(self.number, code)
