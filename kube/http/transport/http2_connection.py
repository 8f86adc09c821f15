"""One HTTP/2 connection to a server, and its responses in progress.

The connection's window has the largest size, and only each stream's window limits the buffered bytes, so that a slow
reader of one response does not block the others. This module builds and parses frames itself, because h2 takes as long
for a request as all other work of the hub for it.
"""

from __future__ import annotations

import asyncio

from kube.bounds import reached
from kube.http.transport.frame_writer import FrameWriter
from kube.http.transport.hpack_decoder import HpackDecoder
from kube.http.transport.http2_framing import (
    LARGEST_31_BITS,
    MAX_FRAME,
    MAX_HEAD,
    PREFACE,
    EndCode,
    FrameFlag,
    FrameKind,
    FrameSplitter,
    PeerError,
    Setting,
    number_of,
    packed,
    packed_settings,
    settings_of,
    unpadded,
)
from kube.http.transport.http2_stream import RequestedStream
from kube.http.transport.request_fields import HeaderFields, with_prefix
from kube.http.transport.response_sink import NotProcessed, ResponseSink

WINDOW = 2**31 - 1
"""The connection's receive window in bytes: HTTP/2's maximum, so that it never limits."""
STREAMS_AT_FIRST = 100
"""The most streams until the peer sends its limit: the default of kube-apiserver and of Go."""
PING_AFTER = 58.0
"""Seconds without a frame from the peer after which a connection with responses in progress is pinged, and one without
is closed. A peer that does not answer the ping in as many seconds counts as dead. Routers drop connections that are
silent for minutes."""


class Http2Connection(asyncio.Protocol):
    """A `kube.http.transport.connection_pool.Connection`."""

    def __init__(self, prefix: bytes = b"") -> None:
        """Set `prefix`, the beginning of each path at this server."""
        self._prefix = prefix
        self._transport: asyncio.Transport | None = None
        self._decoder = HpackDecoder(MAX_HEAD)
        self._reader = FrameSplitter()
        self._streams: dict[int, RequestedStream] = {}
        self._unsettled: dict[ResponseSink, None] = {}
        """The sinks that have received something since their last `settle`."""
        self._writer = FrameWriter(self._unsettled)
        self._next = 1
        self._received = 0
        """Bytes of all bodies since the connection's window was last reopened."""
        self._limit = STREAMS_AT_FIRST
        self._is_ending = self._is_retired = False
        self._timer: asyncio.TimerHandle | None = None
        self._was_heard = True
        """True if the peer has sent something since the timer was set."""
        self._is_asked = False
        """True if a ping was sent since the peer last sent something."""
        self._pongs: list[tuple[float, asyncio.Future[float]]] = []
        """The send time and the waiting future of each unanswered ping."""

    # -- for callers that send requests

    @property
    def is_open(self) -> bool:
        return not self._is_ending and self._transport is not None and not self._transport.is_closing()

    @property
    def has_capacity(self) -> bool:
        return not self._is_retired and len(self._streams) < self._limit and self._next < LARGEST_31_BITS

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Accept no more requests, and close after the last response in progress."""
        self._is_retired = True

    def ping(self) -> asyncio.Future[float]:
        loop = asyncio.get_running_loop()
        pong: asyncio.Future[float] = loop.create_future()
        self._pongs.append((loop.time(), pong))
        self._ask()
        return pong

    def send(
        self, fields: HeaderFields, body: bytes, response: ResponseSink, *, is_complete: bool = True
    ) -> None:
        number, self._next = self._next, self._next + 2
        response.stream = number
        stream = self._streams[number] = RequestedStream(number, response, fields[0][1])
        stream.add(body, is_last=is_complete)
        self._writer.begin(stream, with_prefix(self._prefix, fields))
        self._writer.flush()

    def send_more(self, response: ResponseSink, data: bytes, *, is_last: bool) -> None:
        stream = self._streams.get(response.stream)
        if stream is not None and not stream.is_complete:
            stream.add(data, is_last=is_last)
            self._writer.send_more(stream)
            self._writer.flush()

    def unsent(self, response: ResponseSink) -> int:
        stream = self._streams.get(response.stream)
        return stream.to_send if stream is not None else 0

    def acknowledge_data(self, response: ResponseSink, size: int) -> None:
        stream = self._streams.get(response.stream)
        if stream is not None and not response.has_ended and (more := stream.consume(size)):
            self._writer.send_window_update(response.stream, more)
            self._writer.flush()

    def release(self, response: ResponseSink) -> None:
        stream = self._streams.pop(response.stream, None)
        if stream is not None:
            is_complete = stream.has_ended and stream.is_sent
            has_begun = self._writer.drop(stream)
            if has_begun and not is_complete and response.error is None and self.is_open:
                self._writer.frame(FrameKind.RST_STREAM, 0, response.stream, packed(EndCode.CANCEL))
                if stream.has_granted:
                    self._writer.flush()  # else the next frame carries it along
        self._close_if_retired()

    # -- for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = self._writer.transport = transport
        self._timer = asyncio.get_running_loop().call_later(PING_AFTER, self._check_idle)
        transport.write(PREFACE)
        settings = {Setting.ENABLE_PUSH: 0, Setting.INITIAL_WINDOW: 0, Setting.FRAME_SIZE: MAX_FRAME}
        self._writer.frame(FrameKind.SETTINGS, 0, 0, packed_settings(settings))
        self._writer.send_window_update(0, WINDOW - self._writer.window)
        self._writer.flush()

    def data_received(self, data: bytes) -> None:
        self._was_heard = True
        try:
            for kind, flags, number, payload in self._reader.read(data):
                if self._is_ending:
                    break
                self._take_frame(kind, flags, number, payload)
        except PeerError as error:
            self._fail(str(error), error.code)
        self._writer.flush()
        if self._writer.is_flooded and not self._is_ending:
            reached("what a server leaves unread")
            self._end("the peer does not read its answers")
            self.close()
        self._settle()

    def pause_writing(self) -> None:
        self._writer.is_paused = True

    def resume_writing(self) -> None:
        self._writer.is_paused = False
        self._writer.flush()
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "the connection was closed"))
        self._transport = self._writer.transport = None
        if self._timer is not None:
            self._timer.cancel()

    def _check_idle(self) -> None:
        """Ping a peer that has been silent, or close the connection."""
        if not self.is_open:
            return
        if self._was_heard:
            self._is_asked = False
        elif not self._streams:
            self.close()
        elif self._is_asked:
            self._end("the peer has not answered a ping")
            self.close()
        else:
            self._is_asked = True
            self._ask()
        self._was_heard = False
        self._timer = asyncio.get_running_loop().call_later(PING_AFTER, self._check_idle)

    def _ask(self) -> None:
        """Check whether the peer is alive: it acknowledges empty SETTINGS, in half the bytes of a PING."""
        self._writer.frame(FrameKind.SETTINGS, 0, 0, b"")
        self._writer.flush()

    # -- input

    def _take_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        match kind:
            case FrameKind.DATA:
                self._take_data(flags, number, payload)
            case FrameKind.HEADERS:
                self._take_head(flags, number, payload)
            case FrameKind.RST_STREAM:
                self._take_reset(number, number_of(payload))
            case FrameKind.SETTINGS:
                self._take_settings(flags, number, payload)
            case FrameKind.PUSH_PROMISE:
                raise PeerError("PUSH_PROMISE, which is switched off")
            case FrameKind.PING:
                self._take_ping(flags, number, payload)
            case FrameKind.GOAWAY:
                self._take_goaway(number, payload)
            case FrameKind.WINDOW_UPDATE:
                self._take_window(number, number_of(payload) & LARGEST_31_BITS)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._received += size
        if self._received > WINDOW // 2:
            self._writer.send_window_update(0, self._received)
            self._received = 0
        stream = self._stream(number)
        if stream is None:
            return
        stream.receive(size)
        piece = unpadded(flags, payload)
        try:
            stream.take_data(piece, size, has_ended=bool(flags & FrameFlag.END_STREAM))
        except ValueError as error:
            self._refuse(stream, str(error))
        self._unsettled[stream.response] = None

    def _take_head(self, flags: int, number: int, block: bytes) -> None:
        # The head of a closed stream changes the HPACK table, too, so it is decoded.
        fields = self._decoder.decode(block)
        stream = self._stream(number)
        if stream is None:
            return
        try:
            stream.take_head(fields, has_ended=bool(flags & FrameFlag.END_STREAM))
        except ValueError as error:
            self._refuse(stream, f"the response's headers are malformed: {error}")
        if stream.response.status >= 300 and not stream.has_granted:
            self._writer.send_window_update(number, stream.widen(stream.response.first_window))
        self._unsettled[stream.response] = None

    def _take_reset(self, number: int, code: int) -> None:
        stream = self._stream(number)
        if stream is None:
            return
        self._writer.drop(stream)
        if code == EndCode.REFUSED_STREAM and not stream.response.status:
            stream.response.fail(NotProcessed("the peer refused the stream"))
        else:
            stream.response.fail(ConnectionResetError(f"the response broke off (error {code})"))
        self._unsettled[stream.response] = None

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number or (flags & FrameFlag.ACK and payload):
            raise PeerError("malformed SETTINGS", EndCode.FRAME_SIZE_ERROR)
        if flags & FrameFlag.ACK:
            # One acknowledgement covers all pings sent: Go acknowledges several at once.
            now = asyncio.get_running_loop().time()
            for sent, pong in self._pongs:
                if not pong.done():
                    pong.set_result(now - sent)
            self._pongs.clear()
            return
        for name, value in settings_of(payload):
            match name:
                case Setting.TABLE_SIZE:
                    self._writer.encoder.resize(value)
                case Setting.MAX_STREAMS:
                    self._limit = value
                case Setting.INITIAL_WINDOW:
                    if value > LARGEST_31_BITS:
                        raise PeerError("an initial window that is too large", EndCode.FLOW_CONTROL_ERROR)
                    self._writer.first_window = value
                case Setting.FRAME_SIZE:
                    if not 2**14 <= value < 2**24:
                        raise PeerError("an invalid SETTINGS_MAX_FRAME_SIZE")
                    self._writer.largest_frame = value
        self._writer.frame(FrameKind.SETTINGS, FrameFlag.ACK, 0, b"")

    def _take_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) != 8:
            raise PeerError("a malformed PING", EndCode.FRAME_SIZE_ERROR)
        if not flags & FrameFlag.ACK:
            self._writer.frame(FrameKind.PING, FrameFlag.ACK, 0, payload)

    def _take_goaway(self, number: int, payload: bytes) -> None:
        if number or len(payload) < 8:
            raise PeerError("a malformed GOAWAY", EndCode.FRAME_SIZE_ERROR)
        last, code = number_of(payload[:4]) & LARGEST_31_BITS, number_of(payload[4:8])
        self.retire()
        # Go through the streams once, not for each frame: 64 KiB may have 3,800 such frames.
        while self._streams and next(reversed(self._streams)) > last:
            _, stream = self._streams.popitem()
            self._writer.drop(stream)
            stream.response.fail(NotProcessed("the peer takes no more requests on this connection"))
            self._unsettled[stream.response] = None
        if code != EndCode.NO_ERROR:
            self._end(f"the peer closed the connection (error {code})")
        self._close_if_retired()

    def _take_window(self, number: int, more: int) -> None:
        if not number:
            self._writer.window += more
            if not more or self._writer.window > WINDOW:
                raise PeerError(
                    "an increment of the window that is zero or too large", EndCode.FLOW_CONTROL_ERROR
                )
            return
        stream = self._stream(number)
        if stream is None:
            return
        stream.window += more
        if not more or stream.window + self._writer.first_window > WINDOW:
            self._refuse(stream, "an increment of the window that is zero or too large")

    def _stream(self, number: int) -> RequestedStream | None:
        """The stream with this number; None if its response has ended. PeerError if it was never opened."""
        if not number & 1 or number >= self._next:
            raise PeerError(f"a frame of stream {number}, which was never opened")
        stream = self._streams.get(number)
        is_over = stream is None or stream.response.has_ended or stream.response.error is not None
        return None if is_over else stream

    def _refuse(self, stream: RequestedStream, why: str) -> None:
        """Abort a malformed response."""
        if self._writer.drop(stream):
            self._writer.frame(FrameKind.RST_STREAM, 0, stream.number, packed(EndCode.PROTOCOL_ERROR))
        stream.response.fail(ConnectionResetError(f"it does not speak HTTP/2: {why}"))
        self._unsettled[stream.response] = None

    def _settle(self) -> None:
        unsettled = list(self._unsettled)
        self._unsettled.clear()
        for response in unsettled:
            response.settle()

    def _close_if_retired(self) -> None:
        if self._is_retired and not self._streams and self._transport is not None:
            self._transport.close()

    def _fail(self, why: str, code: int) -> None:
        self._writer.frame(FrameKind.GOAWAY, 0, 0, packed(0, code))
        self._writer.flush()
        self._end(f"it does not speak HTTP/2: {why}")

    def _end(self, why: str) -> None:
        self._is_ending = True
        for stream in list(self._streams.values()):
            stream.response.fail(ConnectionResetError(why))
            self._unsettled[stream.response] = None
        for _, pong in self._pongs:
            if not pong.done():
                pong.set_exception(ConnectionResetError(why))
        if self._transport is not None:
            self._transport.close()
        self._settle()
