"""mitmproxy's client connections with bounds: what no server must read for long, the hub refuses, with a Status.

mitmproxy itself reads a request's head without end, fails with a stack trace at trailers, and reads on behind a
request that it has answered already.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from h2.config import H2Configuration
from h2.events import Event as H2Event
from h2.events import RequestReceived, TrailersReceived
from h2.exceptions import ProtocolError
from h2.utilities import HeaderValidationFlags, validate_headers
from mitmproxy import http
from mitmproxy.connection import ConnectionState
from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http1 import Http1Server, make_body_reader
from mitmproxy.proxy.layers.http._http2 import Http2Server, StreamState

from addons.proxy.http.http_connections import HubH2Connection, OwnMethod
from addons.proxy.http.messages import request_of_fields, request_of_lines
from addons.proxy.http.own_events import NextTurn
from addons.requests.exchange.client_addresses import MAX_REQUEST_BODY
from addons.requests.exchange.client_turns import Frames
from addons.requests.exchange.error_responses import error_body, error_response
from addons.requests.exchange.request_bodies import (
    CHUNK_LINE_TOO_LONG,
    CHUNKS_AT_ONCE,
    MAX_CHUNK_LINE,
    MalformedBody,
    StrictReader,
)
from addons.requests.exchange.request_head import MAX_HEADERS, MAX_TARGET, headers_too_large, target_too_long
from addons.telemetry import metrics
from kube.errors import StatusError, bad_request

MAX_DISCARDED = MAX_REQUEST_BODY
"""Bytes that the hub reads and drops after it has answered a request of HTTP/1.1, before it ends the connection."""
LINE_EXTRA = 64
"""Bytes of a request line beside its target: method and version."""
LARGEST_HEADER_LIST = 4 * MAX_HEADERS
"""Bytes of headers, as HTTP/2 counts them, beyond which the connection ends; below, the request gets a Status."""
OF_REQUESTS = HeaderValidationFlags(
    is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
)
"""As h2 calls what a server receives at the head of a request."""
TRAILERS = "the request has trailers, which no Kubernetes client sends"


class BoundedHttp1Server(Http1Server):
    """A client connection of HTTP/1.1 whose heads, trailers and left-over bodies are bounded."""

    state: Any = OwnMethod(Http1Server.start)
    body_reader: Any  # a StrictReader
    _has_line = False
    """Whether the request line of the head that is being read is there in whole."""
    _discarded = 0
    _head_since: float | None = None
    """Since when the head of a request is not complete, by the monotonic clock."""
    _answered_since: float | None = None
    """Since when the last request that the hub answered before its end is answered."""
    _turn: NextTurn | None = None

    @property
    def waits(self) -> bool:
        """Whether a request, or chunks of a body, wait for their turn: the client is not read from meanwhile."""
        return self._turn is not None

    @property
    def waits_since(self) -> float | None:
        """Since when the hub waits for the rest of a head, or of a request that is answered; None where it does not."""
        return self._answered_since if self.response_done and not self.request_done else self._head_since

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Wakeup):
            self._turn = None
            if self.state == self.read_body:
                yield from self.read_body(events.DataReceived(self.conn, b""))
            elif self.state == self.read_headers:
                yield from self._read_head(events.DataReceived(self.conn, b""))
            return
        if isinstance(event, events.DataReceived) and self.waits:
            self.buf += event.data
            return
        if isinstance(event, events.DataReceived) and self.response_done and not self.request_done:
            self._discarded += len(event.data)
            if self._discarded > MAX_DISCARDED:
                metrics.CONNECTIONS_REFUSED.labels("behind").inc()
                yield from self._end()
                return
        yield from super()._handle_event(event)
        if self.state == self.wait and len(self.buf) > MAX_HEADERS:
            # The request is not answered yet, a watch mostly, and its client sends on and on behind it.
            metrics.CONNECTIONS_REFUSED.labels("ahead").inc()
            yield from self._end()
            why = "the client sent too much behind its request"
            yield ReceiveHttp(RequestProtocolError(self.stream_id, why, ErrorCode.CLIENT_DISCONNECTED))

    def _end(self) -> layer.CommandGenerator[None]:
        """End the connection, and drop what came and was not read."""
        yield commands.CloseConnection(self.conn)
        self.buf.maybe_extract_at_most(len(self.buf))
        self.state = self.done

    def _refuse(self, fault: StatusError) -> layer.CommandGenerator[None]:
        """End the connection with a Status, unless an answer has begun."""
        metrics.REQUESTS_REFUSED.labels(str(fault.code)).inc()
        if self.response is None:
            yield commands.SendData(self.conn, error_response(fault.code, fault.message))
        yield from self._end()

    def read_headers(self, event: events.ConnectionEvent) -> layer.CommandGenerator[None]:
        if not isinstance(event, events.DataReceived):
            yield from super().read_headers(event)
        elif event.data:
            yield from self._read_head(event)
        else:
            # A request came behind the one that is answered. Others go between, and no stack grows with such requests.
            self._turn = NextTurn()
            yield self._turn

    def _read_head(self, event: events.DataReceived) -> layer.CommandGenerator[None]:
        lines = self.buf.maybe_extract_lines()
        if not lines and self.buf:
            if self._head_since is None:
                self._head_since = time.monotonic()
            if (fault := self._fault()) is not None:
                yield from self._refuse(fault)
            return
        self._has_line, self._head_since = False, None
        if not lines:
            return
        try:
            self.request = request_of_lines([bytes(line) for line in lines])
            size = http1.expected_http_body_size(self.request)
        except ValueError as error:
            yield from self._refuse(bad_request(str(error)))
            if self.request is not None:  # people may see it
                yield ReceiveHttp(RequestHeaders(self.stream_id, self.request, False))
                yield self._malformed(str(error))
            return
        yield ReceiveHttp(RequestHeaders(self.stream_id, self.request, size == 0))
        self.body_reader = StrictReader(make_body_reader(size))
        self.state = self.read_body
        yield from self.read_body(event)

    def read_body(self, event: events.Event) -> layer.CommandGenerator[None]:
        try:
            has_more = yield from joined(super().read_body(event))
        except NotImplementedError:  # mitmproxy's word for trailers
            yield from self._refuse_body(TRAILERS)
            return
        except MalformedBody as error:
            yield from self._refuse_body(str(error))
            return
        if has_more:
            self._turn = NextTurn()
            yield self._turn
        elif self.state == self.read_body and len(self.buf) > MAX_CHUNK_LINE:  # all else is taken as it comes
            yield from self._refuse_body(CHUNK_LINE_TOO_LONG)

    def _refuse_body(self, why: str) -> layer.CommandGenerator[None]:
        yield from self._refuse(bad_request(why))
        yield self._malformed(why)

    def _malformed(self, why: str) -> ReceiveHttp:
        return ReceiveHttp(RequestProtocolError(self.stream_id, why, ErrorCode.GENERIC_CLIENT_ERROR))

    def send(self, event: HttpEvent) -> layer.CommandGenerator[None]:
        is_head = self.request is not None and self.request.data.method == b"HEAD"
        code = event.code.http_status_code() if isinstance(event, ResponseProtocolError) else None
        if isinstance(event, ResponseProtocolError) and code is not None and self.response is None:
            if self.conn.state & ConnectionState.CAN_WRITE:
                if event.code is ErrorCode.REQUEST_VALIDATION_FAILED:  # by mitmproxy itself
                    metrics.REQUESTS_REFUSED.labels(str(code)).inc()
                answer = error_response(code, event.message)
                head, end, body = answer.partition(b"\r\n\r\n")
                yield commands.SendData(self.conn, head + end + (b"" if is_head else body))
                yield commands.CloseConnection(self.conn)
        elif not (is_head and isinstance(event, ResponseData)) and not isinstance(event, ResponseTrailers):
            yield from super().send(event)  # HTTP/1.1 lets a proxy drop trailers (RFC 9110, 6.5.1)
        if self.response_done and not self.request_done:
            self._answered_since = time.monotonic()

    def _fault(self) -> StatusError | None:
        """Why the head that is not complete yet is refused."""
        if not self._has_line and len(self.buf) > MAX_TARGET + LINE_EXTRA:
            line, end, _ = bytes(self.buf).partition(b"\n")
            if not end or len(line) > MAX_TARGET + LINE_EXTRA:
                return target_too_long()
            self._has_line = True
        return headers_too_large() if len(self.buf) > MAX_HEADERS + MAX_TARGET else None


class BoundedHttp2Server(Http2Server):
    """A client connection of HTTP/2 whose malformed requests are a 400 each, and whose own errors are JSON.

    h2 and mitmproxy end the connection at a malformed head, with all other streams of the client.
    """

    h2_conf = H2Configuration(**Http2Server.h2_conf_defaults, client_side=False)
    h2_conn: HubH2Connection

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.h2_conf.validate_inbound_headers = False  # `handle_h2_event` does
        self.h2_conn = HubH2Connection(self.h2_conf)
        self.h2_conn.decoder.max_header_list_size = LARGEST_HEADER_LIST
        self._heads: set[int] = set()
        """Open streams whose clients ask for heads alone, and take a body for an error of the connection."""
        self._frames = Frames()
        self._turn: NextTurn | None = None

    @property
    def waits(self) -> bool:
        """Whether frames of the client wait for their turn: it is not read from meanwhile."""
        return self._turn is not None

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.DataReceived):
            self._frames.add(event.data)
            if not self.waits:
                yield from self._go()
            return
        if isinstance(event, events.Wakeup) and event.command is self._turn:
            self._turn = None
            yield from self._go()
            return
        if isinstance(event, ResponseData) and event.stream_id in self._heads:
            return
        if isinstance(event, ResponseProtocolError) and self._is_unanswered(event.stream_id):
            code = event.code.http_status_code()
            if code is not None:
                self._answer(event.stream_id, code, event.message)
                yield commands.SendData(self.conn, self.h2_conn.data_to_send())
                return
        yield from super()._handle_event(event)

    def _go(self) -> layer.CommandGenerator[None]:
        yield from super()._handle_event(events.DataReceived(self.conn, self._frames.take()))
        if self._frames.has_more:
            self._turn = NextTurn()
            yield self._turn

    def handle_h2_event(self, event: H2Event) -> layer.CommandGenerator[bool]:
        if isinstance(event, RequestReceived):
            if (b":method", b"HEAD") in event.headers:
                self._heads = {event.stream_id, *(head for head in self._heads if not self.is_closed(head))}
            try:
                request = _request_of(event)
            except (ProtocolError, ValueError) as error:
                metrics.REQUESTS_REFUSED.labels("400").inc()
                self._answer(event.stream_id, 400, f"the head of the request is malformed: {error}")
                return False
            self.streams[event.stream_id] = StreamState.HEADERS_RECEIVED
            yield ReceiveHttp(RequestHeaders(event.stream_id, request, bool(event.stream_ended)))
            return False
        if not isinstance(event, TrailersReceived):
            return (yield from super().handle_h2_event(event))
        metrics.REQUESTS_REFUSED.labels("400").inc()
        yield ReceiveHttp(RequestProtocolError(event.stream_id, TRAILERS, ErrorCode.GENERIC_CLIENT_ERROR))
        if self._is_unanswered(event.stream_id):
            self._answer(event.stream_id, 400, TRAILERS)
        return False

    def _is_unanswered(self, stream_id: int) -> bool:
        if not self.is_open_for_us(stream_id):
            return False
        return not self.h2_conn.streams[stream_id].state_machine.headers_sent

    def _answer(self, stream_id: int, code: int, message: str) -> None:
        headers = [(b":status", b"%d" % code), (b"content-type", b"application/json")]
        is_head = stream_id in self._heads
        self.h2_conn.send_headers(stream_id, headers, end_stream=is_head)
        if not is_head:
            self.h2_conn.send_data(stream_id, error_body(code, message), end_stream=True)


def _request_of(event: RequestReceived) -> http.Request:
    """A request's head; ProtocolError or ValueError where it is malformed (RFC 9113, 8.1.1)."""
    for _ in validate_headers(event.headers, OF_REQUESTS):
        pass  # each is looked at as it is taken
    # h2 compares the length with a body alone. A server of HTTP/1.1 would take the next request for the body.
    lengths = [value for name, value in event.headers if name == b"content-length"]
    if event.stream_ended is not None and any(length.strip(b"0") for length in lengths):
        raise ValueError("the request promises a body, and has none")
    return request_of_fields(event.headers)


def joined(handling: Generator[commands.Command]) -> Generator[commands.Command, None, bool]:
    """The commands, with pieces of a request's body that follow each other made one; whether more are to come.

    After CHUNKS_AT_ONCE pieces it takes no more. h11 reads each when it is asked for it, and leaves the rest.
    """
    pieces: list[bytes] = []
    stream = 0
    for command in handling:
        event = command.event if isinstance(command, ReceiveHttp) else None
        if isinstance(event, RequestData):
            pieces.append(event.data)
            stream = event.stream_id
            if len(pieces) == CHUNKS_AT_ONCE:
                handling.close()
                break
            continue
        if pieces:
            yield ReceiveHttp(RequestData(stream, b"".join(pieces)))
            pieces.clear()
        yield command
    if pieces:
        yield ReceiveHttp(RequestData(stream, b"".join(pieces)))
    return len(pieces) == CHUNKS_AT_ONCE
