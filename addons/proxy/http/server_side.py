"""Stands where mitmproxy has the connections to servers, for all requests of a client.

A request is answered by the hub, or relayed by the connection that the hub has for its identity, if `addons.egress` has
said where.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from weakref import WeakKeyDictionary

from mitmproxy import http
from mitmproxy.connection import ConnectionState, Server
from mitmproxy.proxy import layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._base import HttpConnection, HttpEvent
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
)

from addons.proxy.http.own_events import HeldBody
from addons.proxy.http.played_stream import PlayedStream, players
from addons.proxy.http.request_stream import RequestStream
from addons.requests.exchange.client_side import SWITCHED
from addons.requests.exchange.own_answers import AnswerStream, answer_request
from addons.requests.exchange.relayed_answers import RelayedAnswer
from addons.requests.request_context import RequestContext, context_of

_relays: WeakKeyDictionary[http.HTTPFlow, RelayedAnswer] = WeakKeyDictionary()
"""Those that are under way, by their flows."""


def finish(flow: http.HTTPFlow, why: str) -> None:
    """End the watch that a server answers to a flow."""
    relay = _relays.get(flow)
    if relay is not None:
        if (context := context_of(flow)) is not None:
            context.served.ended = why
        relay.finish(why)


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
            sending = AnswerStream(self._played(self._stream(event.stream_id))).send_held(event.data)
            self._start(event.stream_id, sending, "plays a held answer")
        elif isinstance(answer, RelayedAnswer):
            if isinstance(event, RequestData):
                answer.write(event.data)
            elif isinstance(event, RequestEndOfMessage):
                answer.close()
        elif isinstance(event, RequestData):
            if (received := self._stream(event.stream_id).received) is not None:
                received(event.data)
        elif isinstance(event, RequestEndOfMessage):
            self._answer(event.stream_id)
        yield from ()

    def _relay(self, stream: RequestStream, context: RequestContext) -> RelayedAnswer:
        relay = RelayedAnswer(self._played(stream), context, partial(self._ended, stream))
        self._under_way[stream.stream_id] = _relays[stream.flow] = relay
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

    def _played(self, stream: RequestStream) -> PlayedStream:
        return PlayedStream(stream, self._streams, players[self.context.client.id])

    async def _answer_or_relay(self, stream: RequestStream) -> None:
        if await answer_request(self._played(stream)):
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

    def _ended(self, stream: RequestStream) -> None:
        _relays.pop(stream.flow, None)
        relay = self._under_way.pop(stream.stream_id, None)
        if isinstance(relay, RelayedAnswer) and relay.status == SWITCHED:
            self.server.state = ConnectionState.CLOSED


def _relayed_by(flow: http.HTTPFlow) -> RequestContext | None:
    """What is known of a request that a server answers; None for one of the hub's own."""
    context = context_of(flow)
    return (
        context if context is not None and context.answerer is None and context.upstream is not None else None
    )
