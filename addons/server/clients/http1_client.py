"""A client's HTTP/1.1 connection: h11 parses requests, and each is answered before the next is parsed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import h11
from mitmproxy import connection, http

from addons.server.clients.client_connection import SOCKET_BUFFER, ClientConnection
from addons.server.clients.http1_answer import CONTINUE, AnswerFraming
from addons.server.clients.http1_head import Http1Head, read_without_body
from addons.server.limits.client_addresses import MAX_REQUEST_BODY, STREAM_UNREAD
from addons.server.limits.request_bodies import CHUNK_LINE_TOO_LONG, CHUNKS_PER_STEP, MAX_CHUNK_LINE
from addons.server.limits.request_head import (
    FRAMING,
    MAX_HEADERS,
    MAX_TARGET,
    connection_options,
    headers_too_large,
    target_too_long,
)
from addons.server.messages import SWITCHING_PROTOCOLS, error_response, request_of_line
from addons.server.request import AnswerFields, Serve, ServedRequest
from addons.telemetry import metrics
from kube.errors import StatusError, bad_request

MAX_DISCARDED = MAX_REQUEST_BODY
"""Maximum bytes of an answered HTTP/1.1 request's body that the hub reads and drops before it closes the connection."""
LINE_EXTRA = 64
"""Bytes of a request line in addition to its target: method and version."""
PREFACE = b"PRI"
"""The method of HTTP/2's connection preface (RFC 9113, 3.4)."""
HTTP2_WITHOUT_TLS = "HTTP/2 needs TLS: use HTTP/1.1 here, or the TLS port"
TRAILERS = "the request has trailers, which no Kubernetes client sends"

_HEAD_END = re.compile(rb"\n\r?\n")
_FOLDED = re.compile(rb"\n[ \t]")


class Http1(ClientConnection):
    """Serves one request at a time. Later requests stay in the input buffer."""

    def __init__(self, client: connection.Client, serve: Serve) -> None:
        super().__init__(client, serve)
        self._h11: h11.Connection
        """Parses the body of the current request only."""
        self._current: Http1Request | None = None
        self._searched = 0
        """Bytes of an incomplete head that were already searched for its end."""
        self._discarded = 0
        self._head_since: float | None = None
        """Monotonic time since when the head of a request has been incomplete; None if it is not."""
        self._answered_since: float | None = None
        """Monotonic time since when the current request has been answered although its body has not ended; None if it
        is not.
        """

    @property
    def requests(self) -> Iterable[Http1Request]:
        return () if self._current is None else (self._current,)

    @property
    def waits_since(self) -> float | None:
        """Monotonic time since when the hub has waited for the rest of a head, or of an answered request; None if it
        does not wait.
        """
        return self._answered_since if self._answered_since is not None else self._head_since

    @property
    def held(self) -> int:
        # A client of HTTP/1.1 reads one answer, so SOCKET_BUFFER applies to its unread and unwritten bytes together.
        return max(0, self.unread + self.unwritten - SOCKET_BUFFER)

    @property
    def must_pause_reading(self) -> bool:
        current = self._current
        return super().must_pause_reading or (current is not None and current.inbox.size > STREAM_UNREAD)

    def eof_received(self) -> bool:
        """Treat a client that shuts down its sending side as gone, like Go's server."""
        if self._current is not None and self._current.is_switched:
            self._current.inbox.end()
        return False

    # -- input ------------------------------------------------------------------------------------------------------

    def handle(self) -> bool:
        current = self._current
        if current is None:
            return self._read_head()
        if current.is_switched:
            current.inbox.put(self._take_input())
            return False
        if not current.inbox.has_ended:
            if self._input:
                self._h11.receive_data(self._take_input())
            return self._read_body(current)
        if len(self._input) > MAX_HEADERS:
            # The client keeps sending while its request, mostly a watch, is not answered completely.
            self._close_for("ahead")
        return False

    def _take_input(self) -> bytes:
        data = bytes(self._input)
        self._input.clear()
        return data

    def _read_head(self) -> bool:
        came = self._input
        while came.startswith((b"\r", b"\n")):
            del came[0]
        end = _HEAD_END.search(came, max(0, self._searched - 2))
        if end is None:
            self._searched = len(came)
            if came and self._head_since is None:
                self._head_since = time.monotonic()
            if (fault := self._fault_of_incomplete()) is not None:
                self._refuse(fault)
            return False
        head = bytes(came[: end.end()])
        del came[: end.end()]
        self._searched, self._head_since = 0, None
        try:
            read = read_without_body(head) or self._read_by_h11(head)
            if read.method == PREFACE:
                self._refuse(StatusError(505, "HTTPVersionNotSupported", HTTP2_WITHOUT_TLS))
                return False
            if len(read.names & FRAMING) > 1:
                raise ValueError("the request has both Content-Length and Transfer-Encoding")
            request = request_of_line(read.method, read.target, read.version, read.fields)
        except h11.RemoteProtocolError as error:
            self._refuse(
                StatusError(error.error_status_hint, "BadRequest", f"the head is malformed: {error}")
            )
            return False
        except ValueError as error:
            self._refuse(bad_request(f"the head is malformed: {error}"))
            return False
        self._begin(Http1Request(self, request, read.names))
        return False

    def _read_by_h11(self, head: bytes) -> Http1Head:
        if _FOLDED.search(head):
            raise ValueError("folded header lines are not supported")
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADERS + MAX_TARGET)
        self._h11.receive_data(head)
        event = self._h11.next_event()
        assert isinstance(event, h11.Request)
        fields = tuple(event.headers.raw_items())
        names = frozenset([name.lower() for name, _ in fields])
        return Http1Head(event.method, event.target, b"HTTP/" + event.http_version, fields, names)

    def _begin(self, request: Http1Request) -> None:
        self.has_served = True
        self._current = request
        has_more = False
        if request.has_body:
            if self._input:
                self._h11.receive_data(self._take_input())
            has_more = self._read_body(request)
        else:
            request.inbox.has_ended = True
        if self._current is request and self.transport is not None:
            request.start(self._serve)
        if has_more:
            self.schedule()

    def _read_body(self, current: Http1Request) -> bool:
        """Pass received pieces of a body to its reader; return whether more are buffered than one step may handle."""
        pieces: list[bytes] = []
        has_more = False
        try:
            while (event := self._h11.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Data):
                    pieces.append(bytes(event.data))
                    if has_more := len(pieces) == CHUNKS_PER_STEP:
                        break
                elif isinstance(event, h11.EndOfMessage):
                    if [*event.headers]:
                        self._refuse(bad_request(TRAILERS))
                        return False
                    current.inbox.has_ended = True
                    break
                else:  # the client has shut down its sending side
                    current.leave()
                    break
        except h11.RemoteProtocolError as error:
            self._refuse(bad_request(f"the body of the request is malformed: {error}"))
            return False
        if pieces:
            self._add_piece(current, b"".join(pieces))
        if current.inbox.has_ended:
            self._input += self._h11.trailing_data[0]
            current.inbox.end()
            if current.is_done:
                self._next_request()
        elif (
            not has_more and len(self._h11.trailing_data[0]) > MAX_CHUNK_LINE
        ):  # h11 buffers nothing but the line of a chunk here
            self._refuse(bad_request(CHUNK_LINE_TOO_LONG))
        return has_more

    def _add_piece(self, current: Http1Request, piece: bytes) -> None:
        if not current.is_done:
            current.inbox.put(piece)
            return
        self._discarded += len(piece)
        if self._discarded > MAX_DISCARDED:
            self._close_for("behind")

    def _fault_of_incomplete(self) -> StatusError | None:
        """Return why an incomplete head is refused; None if the hub waits for its rest."""
        if len(self._input) > MAX_TARGET + LINE_EXTRA:
            end = self._input.find(b"\n")
            if not 0 <= end <= MAX_TARGET + LINE_EXTRA:
                return target_too_long()
        return headers_too_large() if len(self._input) > MAX_HEADERS + MAX_TARGET else None

    def _refuse(self, fault: StatusError) -> None:
        """Send a Status, unless an answer has begun, and close the connection."""
        metrics.REQUESTS_REFUSED.labels(str(fault.code)).inc()
        current = self._current
        if current is None or not current.has_begun:
            self.write(error_response(fault.code, fault.message))
        if current is not None:
            current.has_begun = True
            current.leave(fault.message)
        self._input.clear()
        self.close()

    def _close_for(self, reason: str) -> None:
        """Close the connection, and drop unread input."""
        metrics.CONNECTIONS_REFUSED.labels(reason).inc()
        self._input.clear()
        if self._current is not None:
            self._current.leave()
        self.close()

    def abort_unread(self, request: ServedRequest) -> None:
        """Abort the connection: without the rest of this answer the client could not parse a later one."""
        super().abort_unread(request)
        if self.transport is not None:
            self.transport.abort()

    def pass_on_rest(self) -> None:
        """Pass the bytes received after a switched request's head to the reader of its body."""
        if self._current is not None and self._input:
            self._current.inbox.put(self._take_input())

    # -- the end of a request

    def request_done(self, request: ServedRequest) -> None:
        """Start the next request, or close the connection after an incomplete answer."""
        if self._current is not request:
            return
        if self.transport is None:
            self._current = None
            return
        assert isinstance(request, Http1Request)
        request.is_done = True
        if request.is_switched or not request.framing.has_ended:
            self.close()
            return
        if not request.inbox.has_ended:
            self._answered_since = time.monotonic()
            self._discarded += request.inbox.clear()
            self.update_reading()
            return
        self._next_request()

    def _next_request(self) -> None:
        current, self._current, self._answered_since, self._discarded = self._current, None, None, 0
        if current is None or current.framing.is_last:
            self.close()
            return
        if self._input and not self._is_scheduled:
            self.schedule()  # lets other clients run in between, and keeps the stack flat
        self.update_reading()


class Http1Request(ServedRequest):
    """A request whose answer is sent in HTTP/1.1 framing."""

    connection: Http1
    is_switched = False
    """True if the connection has switched to another protocol by a 101."""
    is_done = False
    """Whether the request's task has ended: the rest of its body is dropped."""

    def __init__(self, connection: Http1, head: http.Request, names: frozenset[bytes]) -> None:
        """`names` are the names of the head's fields, in lower case."""
        super().__init__(connection, head, has_body=not names.isdisjoint(FRAMING))
        is_http10, fields = head.data.http_version < b"HTTP/1.1", head.headers
        self._may_continue = (
            not is_http10 and b"expect" in names and "100-continue" in fields["expect"].lower()
        )
        options = connection_options(fields["connection"].encode()) if b"connection" in names else set()
        self.framing = AnswerFraming(
            is_head=self.is_head, is_http10=is_http10, is_last=is_http10 or b"close" in options
        )

    async def read(self) -> bytes:
        inbox = self.inbox
        if self._may_continue and not inbox.pieces and not inbox.has_ended:
            self._may_continue = False
            self.check()
            self.connection.write(CONTINUE)
        piece = await inbox.get()
        self.connection.update_reading()
        return piece

    def announce_close(self, response: http.Response) -> None:
        response.headers["Connection"] = "close"

    def send_head(self, status: int, fields: AnswerFields) -> None:
        self.check()
        head = self.framing.head(status, fields)
        self.has_begun = True
        self.connection.write(head)

    def can_send(self, size: int) -> bool:
        connection = self.connection
        if connection.transport is None or self.why_left or self.is_over or self._unsent:
            return False
        connection.flush_if_large()
        return not connection.is_full

    def send_now(self, data: bytes) -> None:
        if self.is_switched:
            self.connection.write(data)
        elif not self.is_head:
            self.check()
            self.connection.write(self.framing.piece(data))

    async def send(self, data: bytes) -> None:
        self.check()
        if not self.can_send(len(data)):
            self.count_waiting(len(data))
            await self.writable()
            self.count_waiting(0)
        self.send_now(data)

    async def writable(self) -> None:
        self.check()
        self.connection.flush_if_large()
        while self.connection.is_full or self.connection.is_behind:
            await self.connection.wait_for_space(self)

    def end(self, trailers: AnswerFields = ()) -> None:
        """End the answer, without its trailers, which HTTP/1.1 lets a proxy drop (RFC 9110, 6.5.1)."""
        self.check()
        self.connection.write(self.framing.end())
        self.is_over = True

    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        self.check()
        head = self.framing.head(status, fields, None if self.is_head and not body else len(body))
        piece = b"" if self.is_head else self.framing.piece(body)
        response = b"%b%b%b" % (head, piece, self.framing.end())
        self.has_begun = self.is_over = True
        self.connection.write_at_once(response)

    def abort(self) -> None:
        self.is_over = True
        self.connection.close()

    def switch(self, fields: AnswerFields) -> None:
        self.check()
        self.has_begun = self.is_switched = True
        self.connection.write(self.framing.switch(SWITCHING_PROTOCOLS, fields))
        self.inbox.has_ended = False
        self.connection.pass_on_rest()
