"""One HTTP/1.1 connection to a server, with h11: for servers without TLS, and those that offer no HTTP/2."""

from __future__ import annotations

import asyncio
import socket

import h11

from kube.errors import bad_request
from kube.http.transport.request_fields import HeaderFields, with_prefix
from kube.http.transport.response_head import MAX_FIELDS
from kube.http.transport.response_sink import NotProcessed, ResponseSink

IDLE_TIMEOUT = 58.0
"""Seconds after which an idle connection is closed, because its server or a router may have dropped it."""
MAX_HEAD = 64 * 1024
"""The most bytes of a head, or of a chunk's first line."""
SAFE_METHODS = frozenset({b"GET", b"HEAD"})
"""Methods whose request is retried if a reused connection closes before the response begins. A server may close an
idle connection while a request is on its way (RFC 9110, 9.2.2)."""


class Http1Connection(asyncio.Protocol):
    """A `kube.http.transport.connection_pool.Connection` that carries one request at a time."""

    def __init__(self, prefix: bytes = b"") -> None:
        """Set `prefix`, the beginning of each path at this server."""
        self._prefix = prefix
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._transport: asyncio.Transport | None = None
        self._response: ResponseSink | None = None
        """The response in progress, until its reader releases it."""
        self._method = b""
        self._is_safe = False
        """True if the request may be retried."""
        self._untaken = 0
        self._is_paused = False
        self._is_retired = False
        self._was_answered = False
        """True once the server has answered a request on this connection."""
        self._is_switched = False
        """True once both sides have switched to another protocol."""
        self._timer: asyncio.TimerHandle | None = None
        self._was_used = True
        """True if the connection was used since the idle timer was set."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def has_capacity(self) -> bool:
        return self._response is None and not self._is_retired and self._h11.our_state is h11.IDLE

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        self._is_retired = True

    def ping(self) -> None:
        """Return None: HTTP/1.1 has no pings."""

    def send(
        self, fields: HeaderFields, body: bytes, response: ResponseSink, *, is_complete: bool = True
    ) -> None:
        (_, self._method), _, (_, authority), (_, target), *others = with_prefix(self._prefix, fields)
        assert self._transport is not None
        self._was_used = True
        headers = [(b"host", authority), *others]
        names = {name for name, _ in others}
        # A GET may also start a command in a container, as an upgrade (exec over WebSocket), so it is not retried.
        self._is_safe = self._method in SAFE_METHODS and b"upgrade" not in names
        if not is_complete and b"content-length" not in names:
            headers.append((b"transfer-encoding", b"chunked"))
        try:
            sent = self._h11.send(h11.Request(method=self._method, target=target, headers=headers)) or b""
        except h11.LocalProtocolError:
            raise bad_request("the request cannot be sent") from None
        sent += self._framed(body, is_last=is_complete)
        self._untaken = 0
        response.stream, self._response = 1, response
        self._transport.write(sent)

    def send_more(self, response: ResponseSink, data: bytes, *, is_last: bool) -> None:
        if response is not self._response or self._transport is None:
            return
        if self._is_switched:
            self._transport.write(data)
        elif self._h11.our_state is h11.SEND_BODY:
            self._transport.write(self._framed(data, is_last=is_last))

    def _framed(self, data: bytes, *, is_last: bool) -> bytes:
        try:
            sent = (self._h11.send(h11.Data(data=data)) or b"") if data else b""
            return sent + ((self._h11.send(h11.EndOfMessage()) or b"") if is_last else b"")
        except h11.LocalProtocolError:
            raise bad_request("the body differs from Content-Length") from None

    def unsent(self, response: ResponseSink) -> int:
        if response is not self._response or not isinstance(self._transport, asyncio.WriteTransport):
            return 0
        return self._transport.get_write_buffer_size()

    def acknowledge_data(self, response: ResponseSink, size: int) -> None:
        if response is self._response:
            self._untaken -= size
            if self._is_paused and self._untaken <= response.first_window // 2:
                self._read_on()

    def release(self, response: ResponseSink) -> None:
        """Make the connection idle, or close it if the response is incomplete."""
        if response is not self._response:
            return
        self._response = None
        if not response.has_ended or self._is_retired or self._is_switched:
            self.close()
        elif self._is_paused:
            self._read_on()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._check_idle)
        if (stream := transport.get_extra_info("socket")) is not None:
            # A watch may be silent for as long as it is open, and only keep-alive shows that its connection is dead.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(IDLE_TIMEOUT))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, int(IDLE_TIMEOUT / 4))

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.has_ended:
            self._close()  # no request is in progress, and a later one could take these bytes for its response
            return
        if self._is_switched:
            self._hand_on(response, data)
        else:
            self._take(response, data)
        response.settle()

    def eof_received(self) -> None:
        response = self._response
        if response is None or response.has_ended:
            return
        if self._is_switched:
            response.end()
        else:
            self._take(response, b"")
        response.settle()

    def resume_writing(self) -> None:
        if self._response is not None:
            self._response.settle()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._fail(str(error or "the connection was closed"))

    def _check_idle(self) -> None:
        if self._response is None and not self._was_used:
            self.close()
            return
        self._was_used = False
        self._timer = asyncio.get_running_loop().call_later(IDLE_TIMEOUT, self._check_idle)

    def _take(self, response: ResponseSink, data: bytes) -> None:
        try:
            self._h11.receive_data(data)
            while isinstance(event := self._h11.next_event(), h11.Event):
                self._handle(response, event)
                if isinstance(event, h11.EndOfMessage):
                    break
        except h11.RemoteProtocolError as error:
            self._fail(f"it does not speak HTTP/1.1: {error}" if data else "the connection was closed")
            self._close()
            return
        if response.has_ended:
            is_reusable = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
            if is_reusable and not self._h11.trailing_data[0]:
                self._h11.start_next_cycle()
            else:
                self._close()

    def _handle(self, response: ResponseSink, event: object) -> None:
        match event:
            case h11.InformationalResponse() if event.status_code == 101:
                self._was_answered = self._is_switched = True
                response.begin(101, list(event.headers))
                if rest := self._h11.trailing_data[0]:
                    self._hand_on(response, rest)
            case h11.Response():
                self._was_answered = True
                fields = list(event.headers)
                if len(fields) > MAX_FIELDS:
                    raise h11.RemoteProtocolError(f"a head of more than {MAX_FIELDS} fields")
                names = {name for name, _ in fields}
                has_no_body = self._method == b"HEAD" or event.status_code in (204, 304)
                response.is_framed = has_no_body or not names.isdisjoint(
                    {b"content-length", b"transfer-encoding"}
                )
                if b"transfer-encoding" in names:
                    # Chunked coding overrides a Content-Length (RFC 9112, 6.3), which the client must not see.
                    fields = [field for field in fields if field[0] != b"content-length"]
                response.begin(event.status_code, fields)
            case h11.Data():
                self._hand_on(response, bytes(event.data))
            case h11.EndOfMessage():
                response.end()

    def _hand_on(self, response: ResponseSink, piece: bytes) -> None:
        self._untaken += len(piece)
        if self._untaken > response.first_window and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        response.add(piece, len(piece))

    def _read_on(self) -> None:
        self._is_paused = False
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def _fail(self, why: str) -> None:
        if self._response is not None:
            is_unread = self._was_answered and self._is_safe and not self._response.status
            self._response.fail(NotProcessed(why) if is_unread else ConnectionResetError(why))
            self._response.settle()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
