"""Stands where mitmproxy has the connections to servers, for all requests of a client.

A request is answered by the hub, or relayed by the connection that the hub has for its identity, if `addons.egress` has
said where. The server's answer is played into the flow's stream: the server may send on as the client takes what came,
and the client as the server does. The flow shows the connection by which its request went.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from weakref import WeakKeyDictionary

from mitmproxy import http
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.proxy import layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._base import HttpConnection, HttpEvent
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
)

from addons.proxy.http.messages import response_of_answer, response_of_server
from addons.proxy.http.own_answers import AnswerStream, Played, Player, answer_request, players
from addons.proxy.http.request_stream import HeldBody, RequestStream
from addons.requests.answers import ClientLeft, status_answer
from addons.requests.exchange.client_addresses import RETRY_AFTER
from addons.requests.exchange.request_head import fields_to_send
from addons.requests.hidden_credentials import path_of, sent_fields
from addons.requests.request_context import RelayUpstream, RequestContext, context_of
from addons.telemetry import metrics
from kube.errors import StatusError, too_many_requests
from kube.http.transport.connection_pool import Connection
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_sink import FIRST_WINDOW, ResponseSink

LARGEST_WINDOW = 512 * 1024
"""Bytes of one answer that its server may send ahead of the client."""
MAX_AHEAD = 1024 * 1024
"""Bytes that servers may send ahead of all clients at one address; but each answer may have FIRST_WINDOW."""
SWITCHED = 101
"""The status of an answer after which client and server speak another protocol."""

logger = logging.getLogger(__name__)

_shown: WeakKeyDictionary[Connection, Server] = WeakKeyDictionary()
_relays: WeakKeyDictionary[http.HTTPFlow, RelayedAnswer] = WeakKeyDictionary()
"""Those that are under way, by their flows."""


def break_off(flow: http.HTTPFlow, why: str) -> None:
    """Break off what a server answers to a flow."""
    relay = _relays.get(flow)
    if relay is not None:
        relay.break_off(why)


class RelayedAnswer(ResponseSink):
    """One request, and its server's answer."""

    def __init__(
        self, stream: RequestStream, context: RequestContext, player: Player, over: Callable[[], None]
    ) -> None:
        """`over` is called when nothing more comes from a server."""
        assert context.upstream is not None
        self._stream = stream
        self._context = context
        self._upstream: RelayUpstream = context.upstream
        self._player = player
        self._over = over
        self._request = stream.flow.request
        self._is_streamed = False
        """The body goes out as it comes."""
        self._body = bytearray()
        """What waits for a connection, or for the rest of a body that goes out in whole."""
        self._is_whole = False
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None
        """Opens a connection; later, waits until the client has room."""
        self._parts: list[HttpEvent] = []
        """What the server has said since it was last played."""
        self._untaken = 0
        """Bytes of the answer's window that the client has not taken."""
        self._is_over = False
        """Nothing more comes from a server."""
        self._code = ErrorCode.GENERIC_SERVER_ERROR
        """What the client is told of an answer that broke off."""
        _relays[stream.flow] = self

    # -- what the client does

    def open(self, *, has_body: bool) -> None:
        """Take the head of the request."""
        if has_body and self._request.stream:
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
        _relays.pop(self._stream.flow, None)
        self._disconnect()
        self._count_unsent()
        self._over()

    def break_off(self, why: str, code: ErrorCode = ErrorCode.GENERIC_SERVER_ERROR) -> None:
        """End the answer as if the server had failed."""
        self._code = code
        self._disconnect()
        self.fail(ConnectionResetError(why))
        self.settle()

    def give_up(self) -> None:
        metrics.REQUESTS_REFUSED.labels("429").inc()
        why = "the servers take bodies of requests slower than they come"
        if self.status:
            self.break_off(why)
            return
        self._context.upstream = None  # no server has said this
        answer, number = status_answer(too_many_requests(why, RETRY_AFTER)), self._stream.stream_id
        head = response_of_answer(answer.status, answer.headers.items())
        assert isinstance(answer.body, bytes)
        head.headers["Content-Length"] = str(len(answer.body))
        self._parts = [ResponseHeaders(number, head), ResponseData(number, answer.body)]
        self.end()
        self.settle()

    def _count_unsent(self) -> None:
        if self._is_streamed:  # else the body counts as held
            self._stream.address.hold_unsent(self, 0 if self._is_over else self.unsent)

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
            request = self._request
            fields = sent_fields(request)
            head = fields_to_send(request.data.method, path_of(request), fields, self._upstream, length)
            connection.send(head, body, self, is_whole=self._is_whole)
        except StatusError as error:
            self.break_off(error.message, ErrorCode.GENERIC_CLIENT_ERROR)
            return
        self._connection = connection
        self._stream.flow.server_conn = _as_shown(connection, self._upstream)

    # -- what the server does

    @property
    def most_untaken(self) -> int:
        return min(LARGEST_WINDOW, max(FIRST_WINDOW, MAX_AHEAD // max(self._stream.address.requests, 1)))

    def begin(self, status: int, fields: HeaderFields) -> None:
        super().begin(status, fields)
        self._context.is_unframed = not self.is_framed
        head = response_of_server(status, fields, self._request, is_framed=self.is_framed)
        self._parts.append(ResponseHeaders(self._stream.stream_id, head, end_stream=status == SWITCHED))
        if status == SWITCHED:
            self._parts.append(ResponseEndOfMessage(self._stream.stream_id))

    def add(self, piece: bytes, size: int) -> None:
        self._untaken += size
        if piece:
            self._parts.append(ResponseData(self._stream.stream_id, piece))

    def trail(self, fields: HeaderFields) -> None:
        self._parts.append(ResponseTrailers(self._stream.stream_id, http.Headers(fields)))

    def end(self) -> None:
        super().end()
        if self._parts and isinstance(head := self._parts[-1], ResponseHeaders):
            head.end_stream = True
        self._parts.append(ResponseEndOfMessage(self._stream.stream_id))

    def settle(self) -> None:
        if self._is_over:
            return
        if self.error is not None and self._send_again():
            return
        parts, self._parts = self._parts, []
        if self.error is not None:
            parts.append(ResponseProtocolError(self._stream.stream_id, str(self.error), self._code))
        is_over = self.has_ended or self.error is not None
        if is_over:
            self.cancel()
        if parts or self._is_streamed or self.status == SWITCHED:
            self._play(parts)
        if is_over:
            return
        self._count_unsent()
        if self._stream.is_over and self.status != SWITCHED:
            self.cancel()  # the hub has answered in the server's place
        else:
            self._take()

    def _send_again(self) -> bool:
        """Send a request anew that its server did not process; False where that may not be."""
        body = self._stream.kept_body
        if body is None or self._stream.is_over or not self.begin_anew():
            return False
        metrics.REQUESTS_RESENT.inc()
        self._disconnect()
        self._body[:] = body
        self._send()
        return True

    def _play(self, parts: Sequence[HttpEvent]) -> None:
        playing = self._player.server_event(Played(self._stream, parts))
        asyncio.Task(playing, loop=asyncio.get_running_loop(), name="plays an answer", eager_start=True)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release(self)

    def _take(self) -> None:
        """Let the server send as much more as the client has taken, now or once it has."""
        if not self._untaken or self._task is not None:
            return
        if self._player.has_room(self._stream):
            self._make_room()
        else:
            self._task = asyncio.create_task(self._wait_for_client(), name="waits for a client")

    async def _wait_for_client(self) -> None:
        with contextlib.suppress(ClientLeft):
            await self._player.wait_for_room(self._stream)
        self._task = None
        self._make_room()

    def _make_room(self) -> None:
        size, self._untaken = self._untaken, 0
        if self._connection is not None:
            self._connection.take(self, size)


class ServerSide(HttpConnection):
    """Hands each request to who answers it."""

    def __init__(self, context: Context, streams: Mapping[int, layer.Layer]) -> None:
        """`streams` are those of the HTTP layer."""
        # It is open as long as its client's connection is.
        self.server = context.server = Server(
            address=None, state=ConnectionState.OPEN, timestamp_start=time.time()
        )
        super().__init__(context, context.server)
        self._streams = streams
        self._under_way: dict[int, RelayedAnswer | asyncio.Task[None]] = {}
        """Answers of servers, and the tasks that make the hub's own."""

    def let_go(self) -> None:
        """End all answers: the client's connection has ended."""
        for answer in list(self._under_way.values()):
            answer.cancel()

    def unsent(self, stream_id: int) -> int:
        """Bytes of a request's body that its server has no room for."""
        answer = self._under_way.get(stream_id)
        return answer.unsent if isinstance(answer, RelayedAnswer) else 0

    def _handle_event(self, event: HttpEvent) -> layer.CommandGenerator[None]:  # type: ignore[override]  # nothing else comes here
        answer = self._under_way.get(event.stream_id)
        if isinstance(event, RequestHeaders):
            stream = self._stream(event.stream_id)
            if (context := _relayed_by(stream.flow)) is not None:
                self._relay(stream, context).open(has_body=not event.end_stream)
        elif isinstance(event, RequestProtocolError):
            if answer is not None:
                answer.cancel()
        elif isinstance(event, HeldBody):
            sending = self._answer_of(self._stream(event.stream_id)).send_held(event.data)
            self._start(event.stream_id, sending, "plays a held answer")
        elif isinstance(answer, RelayedAnswer):
            if isinstance(event, RequestData):
                answer.write(event.data)
            elif isinstance(event, RequestEndOfMessage):
                answer.close()
        elif isinstance(event, RequestEndOfMessage):
            self._answer(event.stream_id)
        yield from ()

    def _relay(self, stream: RequestStream, context: RequestContext) -> RelayedAnswer:
        player, over = players[self.context.client.id], partial(self._ended, stream.stream_id)
        relay = self._under_way[stream.stream_id] = RelayedAnswer(stream, context, player, over)
        return relay

    def _answer(self, number: int) -> None:
        """Have the hub answer a request that is there in whole, unless a server has done so."""
        stream = self._stream(number)
        if _relayed_by(stream.flow) is not None:
            return
        self._start(number, self._answer_or_relay(stream), f"answer to {stream.flow.request.method}")

    def _start(self, number: int, answering: Coroutine[None, None, None], name: str) -> None:
        """Have a task answer a stream, not at once, as mitmproxy's tasks begin: the layers are at work."""
        task = self._under_way[number] = asyncio.Task(answering, name=name, eager_start=False)
        task.add_done_callback(partial(self._answered, number))

    def _answer_of(self, stream: RequestStream) -> AnswerStream:
        return AnswerStream(stream, self._streams, players[self.context.client.id])

    async def _answer_or_relay(self, stream: RequestStream) -> None:
        if await answer_request(self._answer_of(stream)):
            return
        context = _relayed_by(stream.flow)
        assert context is not None, "answer_request has seen to it"
        relay = self._relay(stream, context)
        relay.write(stream.flow.request.raw_content or b"")
        relay.close()

    def _answered(self, number: int, task: asyncio.Task[None]) -> None:
        if self._under_way.get(number) is task:
            del self._under_way[number]

    def _stream(self, number: int) -> RequestStream:
        stream = self._streams[number]
        assert isinstance(stream, RequestStream)
        return stream

    def _ended(self, number: int) -> None:
        relay = self._under_way.pop(number, None)
        if isinstance(relay, RelayedAnswer) and relay.status == SWITCHED:
            self.server.state = ConnectionState.CLOSED


def _relayed_by(flow: http.HTTPFlow) -> RequestContext | None:
    """What is known of a request that a server answers; None for one of the hub's own."""
    context = context_of(flow)
    return (
        context if context is not None and context.answerer is None and context.upstream is not None else None
    )


def _as_shown(connection: Connection, upstream: RelayUpstream) -> Server:
    """What people see of a connection."""
    if (shown := _shown.get(connection)) is None:
        shown = Server(address=(upstream.host, upstream.port), timestamp_start=time.time())
        shown.state = ConnectionState.OPEN
        shown.tls = upstream.scheme == "https"
        _shown[connection] = shown
    return shown
