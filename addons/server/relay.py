"""Relays a request to a server, over a connection that clients and the hub share, with back-pressure in both
directions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from weakref import WeakKeyDictionary

from mitmproxy import http
from mitmproxy.connection import ConnectionState, Server

from addons.requests.answers import ClientLeft
from addons.requests.hidden_credentials import path_of, sent_fields
from addons.requests.request_context import (
    RelayUpstream,
    RequestContext,
    ServerConnections,
    context_of,
)
from addons.server import flow_hooks
from addons.server.limits.client_addresses import RETRY_AFTER, STREAM_UNREAD
from addons.server.limits.request_bodies import BODY_TIME
from addons.server.limits.request_head import fields_to_send
from addons.server.messages import SWITCHING_PROTOCOLS, response_of_server
from addons.server.request import ServedRequest
from addons.server.respond import Sending, apply_stream_function
from addons.telemetry import metrics
from kube.errors import StatusError, internal, too_many_requests
from kube.http.transport.connection_pool import Connection
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_sink import FIRST_WINDOW, ResponseSink

LARGEST_WINDOW = 512 * 1024
"""Maximum bytes of one answer that its server may send before the client reads them."""
MAX_AHEAD = 1024 * 1024
"""Maximum bytes that servers may send before the clients at one address read them; each answer gets at least
FIRST_WINDOW.
"""

OK = 200

logger = logging.getLogger(__name__)

_shown: WeakKeyDictionary[Connection, Server] = WeakKeyDictionary()


async def relay(
    request: ServedRequest, flow: http.HTTPFlow, context: RequestContext, upstream: RelayUpstream
) -> None:
    """Relay the request to the server of `upstream`. OSError if that fails, StatusError if `upstream` belongs to
    another route.
    """
    if upstream.route is not context.route:
        raise internal("the request is not routed to a server")
    answer = ServerAnswer(request, flow, upstream.connections)
    context.finish, sending = answer.finish, Sending(request, flow)
    try:
        await answer.send_request()
        context.is_unframed = not answer.is_framed
        if answer.status == SWITCHING_PROTOCOLS:
            await _switch(sending, flow, answer)
            return
        await sending.begin(response_of_server(answer.status, answer.fields, flow.request))
        while piece := await answer.next_piece():
            await sending.write(piece)
        await answer.request_observed()
        await sending.end(answer.trailers)
    finally:
        context.finish = None
        sending.release()
        answer.release()


def finish(flow: http.HTTPFlow, why: str) -> None:
    """End a watch that a server answers for this flow, and record the reason."""
    context = context_of(flow)
    if context is not None and context.finish is not None:
        context.served.ended = why
        context.finish(why)


async def _switch(sending: Sending, flow: http.HTTPFlow, answer: ServerAnswer) -> None:
    """Copy the bytes of the new protocol in both directions, until either side closes."""
    await sending.switch(response_of_server(SWITCHING_PROTOCOLS, answer.fields, flow.request))
    answer.start_upload()
    with contextlib.suppress(OSError):  # a lost connection ends the protocol like a close
        while piece := await answer.next_piece():
            await sending.write(piece)


class ServerAnswer(ResponseSink):
    """A request sent to a server, and the server's answer. The owner must call `release`."""

    def __init__(self, request: ServedRequest, flow: http.HTTPFlow, server: ServerConnections) -> None:
        self._request, self._flow, self._server = request, flow, server
        self.fields: HeaderFields = []
        self.trailers: HeaderFields = []
        self._connection: Connection | None = None
        self._fault: StatusError | None = None
        self._waiting: list[bytes] = []
        """Received pieces of the answer's body that the client has not taken. `_window` has their bytes in the
        flow-control window.
        """
        self._window = 0
        self._taken = 0
        """Flow-control bytes of the piece that is being sent to the client, not acknowledged yet."""
        self._waiters: list[asyncio.Future[None]] = []
        self._is_streamed = request.has_body and bool(flow.request.stream)
        self._body = b"" if self._is_streamed else flow.request.raw_content or b""
        self._retry_buffer: bytearray | None = bytearray() if self._is_streamed else None
        """The part of a streamed body received so far, to be sent again to another server; None if it is not
        buffered.
        """
        self._retry_counted = 0
        self._retry_timer: asyncio.TimerHandle | None = None
        self._unsent = bytearray()
        """The part of a streamed body that waits until a connection is open."""
        self._is_observed = not self._is_streamed
        """Whether the addons have seen the complete request."""
        self._is_complete = not self._is_streamed
        self._upload: asyncio.Task[None] | None = None

    @property
    def max_unread(self) -> int:
        return min(LARGEST_WINDOW, max(FIRST_WINDOW, MAX_AHEAD // max(self._request.address.requests, 1)))

    # -- called by the connection -----------------------------------------------------------------------------------

    def begin(self, status: int, fields: HeaderFields) -> None:
        super().begin(status, fields)
        self.fields = fields

    def add(self, piece: bytes, size: int) -> None:
        self._window += size
        if piece:
            self._waiting.append(piece)

    def trail(self, fields: HeaderFields) -> None:
        self.trailers = fields

    def settle(self) -> None:
        if self._connection is not None:
            self._request.count_queued(self._window if self._taken else 0)
            self._count_unsent()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _progress(self) -> None:
        """Wait until the server has sent or consumed bytes. StatusError if the hub aborts the request."""
        if self._fault is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._fault is not None:
            raise self._fault

    # -- the request

    async def send_request(self) -> None:
        """Send the request, and return once the head of the answer has arrived. Retry on another server if the first
        one has not processed the request."""
        while True:
            try:
                self._connection = self._server.available() or await self._open()
                self._send(self._connection)
                while not self.status:
                    if self.error is not None:
                        raise self.error
                    await self._progress()
            except OSError:
                self._disconnect()
                if (self._is_streamed and self._retry_buffer is None) or not self.begin_anew():
                    raise
                metrics.REQUESTS_RESENT.inc()
                self._unsent[:] = self._retry_buffer or b""
            else:
                self._drop_retry_buffer()
                return

    async def _open(self) -> Connection:
        try:
            return await self._server.opened()
        except OSError:
            raise
        except Exception:
            logger.exception("a connection could not be opened")
            raise ConnectionError("the hub could not open a connection") from None

    def _send(self, connection: Connection) -> None:
        body = bytes(self._unsent) if self._is_streamed else self._body
        self._unsent.clear()
        request = self._flow.request
        length = len(body) if self._is_complete else None
        method, target = request.data.method, path_of(request)
        fields = fields_to_send(method, target, sent_fields(request), self._server, length)
        connection.send(fields, body, self, is_complete=self._is_complete)
        self._show(connection)
        if self._upload is None and not self._is_complete:
            self._upload = asyncio.create_task(self._upload_body(), name="body of a request")

    def _show(self, connection: Connection) -> None:
        """Show in interfaces which connection carries the request."""
        if (shown := _shown.get(connection)) is None:
            shown = Server(address=(self._server.host, self._server.port), timestamp_start=time.time())
            shown.state = ConnectionState.OPEN
            shown.tls = self._server.scheme == "https"
            _shown[connection] = shown
        self._flow.server_conn = shown

    async def _upload_body(self) -> None:
        """Read the request's body from the client and send it to the server, with back-pressure."""
        self._request.inbox.grown = self._count_unsent
        request = self._flow.request
        self._retry_timer = asyncio.get_running_loop().call_later(BODY_TIME, self._drop_retry_buffer)
        with contextlib.suppress(ClientLeft, flow_hooks.Killed, StatusError, OSError):
            while piece := await self._request.read():
                for part in apply_stream_function(request.stream, piece):
                    await self._send_piece(part)
            for part in apply_stream_function(request.stream, b"") if callable(request.stream) else ():
                await self._send_piece(part)
            await self._call_request_hook()
            self._is_complete = True
            if self._connection is not None:
                self._connection.send_more(self, b"", is_last=True)

    async def _call_request_hook(self) -> None:
        """Call the addons' hook for the complete request, once."""
        if not self._is_observed:
            self._is_observed = True
            self._flow.request.timestamp_end = time.time()
            await flow_hooks.request_complete(self._request, self._flow)

    async def request_observed(self) -> None:
        """Ensure that the addons have seen the request: a server may answer before the body ends."""
        if self._upload is not None and not self._is_observed:
            self._upload.cancel()
            await self._call_request_hook()

    async def _send_piece(self, piece: bytes) -> None:
        self._buffer_for_retry(piece)
        if self._connection is None:
            self._unsent += piece
        elif piece:
            self._connection.send_more(self, piece, is_last=False)
        self._count_unsent()
        while self._unsent_size > STREAM_UNREAD and self.error is None:
            await self._progress()

    def _buffer_for_retry(self, piece: bytes) -> None:
        """Buffer the body for a retry on another server, until the server begins to answer or a bound is reached."""
        if self._retry_buffer is None:
            return
        size = len(self._retry_buffer) + len(piece)
        if self.status or self._request.address.resize_body(self._retry_counted, size) is not None:
            self._drop_retry_buffer()
        else:
            self._retry_buffer += piece
            self._retry_counted = size

    def _drop_retry_buffer(self) -> None:
        self._retry_buffer = None
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._retry_counted:
            self._request.address.resize_body(self._retry_counted, 0)
            self._retry_counted = 0

    def start_upload(self) -> None:
        """Copy the client's bytes after a 101 to the server, until either side closes."""
        self._is_streamed = True
        self._upload = asyncio.create_task(self._upload_switched(), name="upload after an upgrade")

    async def _upload_switched(self) -> None:
        self._request.inbox.grown = self._count_unsent
        with contextlib.suppress(ClientLeft, StatusError, OSError):
            while piece := await self._request.read():
                await self._send_piece(piece)
        self.break_off("the client closed the connection")

    @property
    def _unsent_size(self) -> int:
        """Bytes of the request's body for which the server has not opened its window."""
        return self._connection.unsent(self) if self._connection is not None else len(self._unsent)

    def _count_unsent(self) -> None:
        if self._is_streamed:
            self._request.address.resize_unsent(self, self._unsent_size + self._request.inbox.size)

    # -- the answer

    async def next_piece(self) -> bytes:
        """Return the next piece of the answer's body, empty at its end. Acknowledge the previous piece to the server.

        ConnectionResetError if the body is truncated.
        """
        self._acknowledge()
        while True:
            if self._waiting or self._window:
                piece = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
                self._waiting.clear()
                self._taken, self._window = self._window, 0
                if piece:
                    return piece
                self._acknowledge()
            elif self.has_ended:
                return b""
            elif self.error is not None:
                raise self.error
            else:
                await self._progress()

    def _acknowledge(self) -> None:
        """Open the server's flow-control window by the bytes that the client has taken."""
        size, self._taken = self._taken, 0
        if size:
            self._request.count_queued(0)
            if self._connection is not None:
                self._connection.acknowledge_data(self, size)

    # -- the end

    def break_off(self, why: str) -> None:
        """Fail the answer as if the server had failed."""
        self._disconnect()
        self.fail(ConnectionResetError(why))
        self.settle()

    def finish(self, why: str) -> None:
        """End a watch as its server would, so that the client resumes it; fail any other answer."""
        if self.status != OK:
            self.break_off(why)
            return
        self.end()
        self.settle()

    def abort_upload(self) -> None:
        """Abort the request with 429: the hub buffers too many request bytes for slow servers, and most for this
        body.
        """
        metrics.REQUESTS_REFUSED.labels("429").inc()
        self._fault = too_many_requests(
            "request bodies arrive faster than the servers read them", RETRY_AFTER
        )
        self._disconnect()
        self.settle()

    def release(self) -> None:
        """Cancel the request at a server that has not finished its answer, and uncount its buffers."""
        if self._upload is not None and not self._request.shielded:
            self._upload.cancel()
        self._request.inbox.grown = None
        self._disconnect()
        self._drop_retry_buffer()
        if self._is_streamed:
            self._request.address.resize_unsent(self, 0)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(self)
