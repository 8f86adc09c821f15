"""A request that a server answers: it goes by a connection that clients and the hub share, and its answer comes back.

The server may send on as the client takes what came, and the client as the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from addons.requests.answers import ClientLeft, status_answer
from addons.requests.exchange.client_addresses import RETRY_AFTER
from addons.requests.exchange.client_side import SWITCHED, ClientSide
from addons.requests.request_context import RelayUpstream, RequestContext
from addons.telemetry import metrics
from kube.errors import StatusError, too_many_requests
from kube.http.transport.connection_pool import Connection
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_sink import FIRST_WINDOW, ResponseSink

LARGEST_WINDOW = 512 * 1024
"""Bytes of one answer that its server may send ahead of the client."""
MAX_AHEAD = 1024 * 1024
"""Bytes that servers may send ahead of all clients at one address; but each answer may have FIRST_WINDOW."""

OK = 200

logger = logging.getLogger(__name__)


class RelayedAnswer(ResponseSink):
    """One request, and its server's answer."""

    def __init__(self, client: ClientSide, context: RequestContext, over: Callable[[], None]) -> None:
        """`over` is called when nothing more comes from a server."""
        assert context.upstream is not None
        self._client = client
        self._context = context
        self._upstream: RelayUpstream = context.upstream
        self._over = over
        self._is_streamed = False
        """The body goes out as it comes."""
        self._body = bytearray()
        """What waits for a connection, or for the rest of a body that goes out in whole."""
        self._is_whole = False
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        """Opens a connection; later, waits until the client has room."""
        self._untaken = 0
        """Bytes of the answer's window that the client has not taken."""
        self._is_over = False
        """Nothing more comes from a server."""
        self._is_clients_fault = False
        """The request cannot be sent as it is."""

    # -- what the client does

    def open(self, *, has_body: bool) -> None:
        """Take the head of the request."""
        if has_body and self._client.is_body_streamed:
            self._is_streamed = True
            self._send()

    def write(self, data: bytes) -> None:
        """Take a piece of the request's body, or of what follows a 101."""
        if self._connection is not None:
            self._connection.send_more(self, data, is_last=False)
        else:
            self._body += data
        self._count_unsent()

    def close(self) -> None:
        """Take the end of the request."""
        self._is_whole = True
        if not self._is_streamed:
            self._send()
        elif self._connection is not None:
            self._connection.send_more(self, b"", is_last=True)

    def cancel(self) -> None:
        """Have no server any more: one that answers is told that nobody takes more of it."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        self._disconnect()
        self._count_unsent()
        self._over()

    def break_off(self, why: str) -> None:
        """End the answer as if the server had failed."""
        self._disconnect()
        self.fail(ConnectionResetError(why))
        self.settle()

    def finish(self, why: str) -> None:
        """End a watch as its server would, so that its client comes back; break off what is no watch yet."""
        if self.status != OK:
            self.break_off(why)
            return
        self.end()
        self.settle()

    def give_up(self) -> None:
        metrics.REQUESTS_REFUSED.labels("429").inc()
        why = "the servers take bodies of requests slower than they come"
        if self.status:
            self.break_off(why)
            return
        self._context.upstream = None  # no server has said this
        answer = status_answer(too_many_requests(why, RETRY_AFTER))
        assert isinstance(answer.body, bytes)
        self._client.answer_head(
            answer.status, [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        )
        self._client.data(answer.body)
        self.end()
        self.settle()

    def _count_unsent(self) -> None:
        if self._is_streamed:  # else the body counts as held
            self._client.address.hold_unsent(self, 0 if self._is_over else self.unsent)

    @property
    def unsent(self) -> int:
        """Bytes of the request's body that the server has no room for."""
        return self._connection.unsent(self) if self._connection is not None else len(self._body)

    def _send(self) -> None:
        connection = self._upstream.kept()
        if connection is not None:
            self._send_by(connection)
        else:
            # Not at once, as mitmproxy's tasks begin: the layers are at work.
            self._task = asyncio.Task(self._open(), name="opens a connection", eager_start=False)

    async def _open(self) -> None:
        why = ""
        try:
            connection = await self._upstream.opened()
        except OSError as error:
            why = str(error) or type(error).__name__
        except Exception:
            logger.exception("a connection could not be opened")
            why = "the hub could not open a connection"
        self._task = None
        if why:
            self.break_off(why)
        else:
            self._send_by(connection)

    def _send_by(self, connection: Connection) -> None:
        body = bytes(self._body)
        self._body.clear()
        length = len(body) if self._is_whole else None
        try:
            fields = self._client.fields_to(self._upstream, length)
            connection.send(fields, body, self, is_whole=self._is_whole)
        except StatusError as error:
            self._is_clients_fault = True
            self.break_off(error.message)
            return
        self._connection = connection
        self._client.goes_by(connection, self._upstream)

    # -- what the server does

    @property
    def most_untaken(self) -> int:
        return min(LARGEST_WINDOW, max(FIRST_WINDOW, MAX_AHEAD // max(self._client.address.requests, 1)))

    def begin(self, status: int, fields: HeaderFields) -> None:
        super().begin(status, fields)
        self._context.is_unframed = not self.is_framed
        self._client.server_head(status, fields, is_framed=self.is_framed)
        if status == SWITCHED:
            self._client.end()

    def add(self, piece: bytes, size: int) -> None:
        self._untaken += size
        if piece:
            self._client.data(piece)

    def trail(self, fields: HeaderFields) -> None:
        self._client.trailers(fields)

    def end(self) -> None:
        super().end()
        self._client.end()

    def settle(self) -> None:
        if self._is_over:
            return
        if self.error is not None and self._send_again():
            return
        if self.error is not None:
            self._client.break_off(str(self.error), is_clients_fault=self._is_clients_fault)
        is_over = self.has_ended or self.error is not None
        if is_over:
            self.cancel()
        if self._client.has_parts or self._is_streamed or self.status == SWITCHED:
            playing, loop = self._client.play(), asyncio.get_running_loop()
            asyncio.Task(playing, loop=loop, name="plays an answer", eager_start=True)
        if is_over:
            return
        self._count_unsent()
        if self._client.is_over and self.status != SWITCHED:
            self.cancel()  # the hub has answered in the server's place
        else:
            self._take()

    def _send_again(self) -> bool:
        """Send a request anew that its server did not process; False where that may not be."""
        body = self._client.kept_body
        if body is None or self._client.is_over or not self.begin_anew():
            return False
        metrics.REQUESTS_RESENT.inc()
        self._disconnect()
        self._body[:] = body
        self._send()
        return True

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(self)

    def _take(self) -> None:
        """Let the server send as much more as the client has taken, now or once it has."""
        if not self._untaken or self._task is not None:
            return
        if self._client.has_room:
            self._make_room()
        else:
            self._task = asyncio.create_task(self._wait_for_client(), name="waits for a client")

    async def _wait_for_client(self) -> None:
        with contextlib.suppress(ClientLeft):
            await self._client.wait_for_room()
        self._task = None
        self._make_room()

    def _make_room(self) -> None:
        size, self._untaken = self._untaken, 0
        if self._connection is not None:
            self._connection.take(self, size)
