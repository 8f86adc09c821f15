"""mitmproxy's HTTP layer, changed for clients that stay connected for months, as every client-go over HTTP/2 does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from mitmproxy import connection
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import DropStream, HttpLayer, HTTPMode, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestHeaders,
    RequestProtocolError,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.tls import ClientTLSLayer

from addons.proxy.http.client_connections import BoundedHttp1Server, BoundedHttp2Server
from addons.proxy.http.http_connections import STREAM_UNREAD
from addons.proxy.http.own_events import BodyTime, UnreadGrew
from addons.proxy.http.played_stream import Played, players
from addons.proxy.http.request_stream import RequestStream
from addons.proxy.http.server_side import ServerSide
from addons.requests.exchange.client_addresses import FAIR_UNREAD, address_of
from addons.requests.exchange.direct_pieces import DirectPieces, Http1Pieces, Http2Pieces
from addons.requests.request_context import context_of
from addons.telemetry import metrics

SOCKET_ROOM = 80 * 1024
"""Bytes that may wait for a client's socket uncounted: the hub's own answers write no more ahead."""
RESET_AT_ONCE = 7 / 8
"""The share of what a client leaves unread that it keeps, at most, when it loses streams. Thousands of small ones, each
looked for among all, took more of the event loop than the requests."""
_layers: WeakValueDictionary[str, HubHttpLayer] = WeakValueDictionary()


def layer_of(client_id: str) -> HubHttpLayer | None:
    """The layer of a client's connection; None before the client has said anything."""
    return _layers.get(client_id)


class HubHttpLayer(HttpLayer):
    """Opens the windows of both sides as the other one takes what came, and bounds what clients leave unread."""

    def __init__(self, context: Context, mode: HTTPMode) -> None:
        super().__init__(context, mode)
        self._has_served = False
        self._is_stalled = False
        """The client has streams whose data the other side has not taken."""
        self._tls = next((layer for layer in context.layers if isinstance(layer, ClientTLSLayer)), None)
        """The layer that has the client's TLS."""
        _layers[context.client.id] = self
        self.address = address_of(context.client)
        self.address.layers.add(self)
        self._server_side = ServerSide(self.context.fork(), self.streams)
        self.connections[self._server_side.server] = self._server_side

    def let_go(self) -> None:
        """Drop what waits for anybody: the client's connection has ended."""
        self._server_side.let_go()
        if self._server is not None:
            self._server.h2_conn.let_go()
        self.streams.clear()
        self.connections.clear()
        self.command_sources.clear()
        self._tls = None

    def event_to_child(self, child: layer.Layer, event: events.Event) -> layer.CommandGenerator[None]:
        """As mitmproxy's own, for the commands that come where no layer opens a connection.

        mitmproxy asks each command for its class up to seven times.
        """
        for command in child.handle_event(event):
            if isinstance(command, SendHttp):
                yield from self.event_to_child(self.connections[command.connection], command.event)
            elif isinstance(command, ReceiveHttp):
                part = command.event
                if isinstance(part, RequestHeaders):
                    yield from self.make_stream(part.stream_id)
                if (stream := self.streams.get(part.stream_id)) is not None:  # else it is over
                    yield from self.event_to_child(stream, part)
            elif isinstance(command, DropStream):
                self.streams.pop(command.stream_id, None)
            else:
                if command.blocking or isinstance(command, commands.RequestWakeup):
                    self.command_sources[command] = child
                yield command

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        self._has_served = True
        # `fork` makes a server of its own first, with an identifier that takes as long as a hook.
        context = Context.__new__(Context)
        vars(context).update(vars(self.context), layers=self.context.layers.copy())
        server = self._server_side.server
        stream = RequestStream(context, stream_id, self.address, server, self._has_handled)
        self.streams[stream_id] = stream
        yield from self.event_to_child(stream, events.Start())

    def _has_handled(self, hook: commands.StartHook) -> bool:
        player = players.get(self.context.client.id)
        return player is not None and player.has_handled(hook)

    def waits_since(self, connected: float) -> float | None:
        """Since when the hub waits for a request, or for the rest of one that it has answered; None where it does not.

        By the monotonic clock.
        """
        if not self._has_served:
            return connected
        server = self.connections.get(self.context.client)
        return server.waits_since if isinstance(server, BoundedHttp1Server) else None

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        match event:
            case Played():
                yield from self._play(event)
            case events.Start():
                yield from self._start(event)
            case events.Wakeup() if event.command not in self.command_sources:
                return
            case BodyTime():
                for stream in list(self.streams.values()):
                    yield from self.event_to_child(stream, event)
            case UnreadGrew():
                pass
            case _:
                yield from super()._handle_event(event)
        has_come = isinstance(event, (events.DataReceived, events.Wakeup))  # or had to wait
        # A client may ask, or ping, and read no answer.
        if has_come or isinstance(event, (Played, UnreadGrew)):
            yield from self._bound_unread()
        if (has_come or self._is_stalled) and _is_http2(self.context.client):
            yield from self._open_windows()

    def _start(self, event: events.Start) -> layer.CommandGenerator[None]:
        client = self.context.client
        if client not in self.connections:  # a replay has its own
            made = BoundedHttp2Server if _is_http2(client) else BoundedHttp1Server
            self.connections[client] = made(self.context.fork())
        yield from self.event_to_child(self.connections[client], event)

    def _play(self, event: Played) -> layer.CommandGenerator[None]:
        for part in event.parts:
            if self.streams.get(part.stream_id) is event.stream:
                yield from self.event_to_child(event.stream, part)

    def direct(
        self, stream: RequestStream, transport: asyncio.WriteTransport, noted: Callable[[], None]
    ) -> DirectPieces | None:
        """The short way of the pieces of a response's body; None where its client takes none, as a replay's."""
        own, tls = self.connections.get(self.context.client), self._tls.tls if self._tls is not None else None
        if stream.flow.request.method == "HEAD":
            return None
        if isinstance(own, BoundedHttp2Server) and stream.stream_id in own.h2_conn.streams:
            return Http2Pieces(stream, tls, transport, noted, own.h2_conn)
        return Http1Pieces(stream, tls, transport, noted) if isinstance(own, BoundedHttp1Server) else None

    def is_behind(self, stream: int) -> bool:
        """Whether a client leaves so much unread that the hub's own answers wait: on a stream, or at its address.

        A client of HTTP/1.1 makes its socket wait.
        """
        server = self._server
        if server is None or not (unread := server.h2_conn.unread):
            return False
        if server.h2_conn.unread_on(stream) > STREAM_UNREAD:
            return True
        return unread > STREAM_UNREAD and self.address.unread > FAIR_UNREAD

    @property
    def is_ahead(self) -> bool:
        """Whether a client waits for its turn, or one of HTTP/1.1 sends more than its server reads.

        Each stream of HTTP/2 has a window.
        """
        own = self.connections.get(self.context.client)
        if isinstance(own, BoundedHttp2Server):
            return own.waits
        if not isinstance(own, BoundedHttp1Server):
            return False
        return own.waits or self._server_side.unsent(own.stream_id) > STREAM_UNREAD

    @property
    def weight(self) -> int:
        """The requests under way, each with what its head counts for."""
        return sum(stream.weight for stream in self.streams.values() if isinstance(stream, RequestStream))

    @property
    def unread(self) -> int:
        """Bytes that a client of HTTP/2 has no room for."""
        server = self._server
        return server.h2_conn.unread if server is not None else 0

    @property
    def held(self) -> int:
        """Bytes that the hub holds because the client does not read: those, and what its socket has no room for."""
        player = players.get(self.context.client.id)
        unwritten = player.unwritten if player is not None else 0
        return self.unread + max(0, unwritten - SOCKET_ROOM)

    @property
    def holds_too_much(self) -> bool:
        """Whether a stream of this client must end, for what the clients of its address leave unread."""
        return self.held > 0 and self.address.leaves_too_much

    @property
    def _server(self) -> BoundedHttp2Server | None:
        """The hub's side of the client's connection, where that is HTTP/2."""
        connection = self.connections.get(self.context.client)
        return connection if isinstance(connection, BoundedHttp2Server) else None

    def _open_windows(self) -> layer.CommandGenerator[None]:
        """Let a client of HTTP/2 send on, on each stream whose data the other side has taken."""
        if self._server is None:
            return
        untaken = self._server.h2_conn.untaken
        taken = [layer for layer in untaken if self._is_taken(layer)]
        self._is_stalled = len(taken) < len(untaken)
        if data := self._server.h2_conn.open_windows(taken):
            yield commands.SendData(self.context.client, data)

    def _is_taken(self, number: int) -> bool:
        """Whether the other side has room for more of a stream."""
        stream = self.streams.get(number)
        # mitmproxy collects without end what comes while the addons think about a stream.
        return stream is None or (
            stream._paused is None and self._server_side.unsent(number) <= STREAM_UNREAD
        )

    def _bound_unread(self) -> layer.CommandGenerator[None]:
        """Reset the streams that hold most, while all clients leave too much unread, and this one's address most.

        A client that does not even read from its socket loses its connection. They are those of the client that holds
        most of all at the address: a component may be where a person's stopped program is.
        """
        while self.holds_too_much:
            if (least := self.address.least_read) is not self:
                least.end_least_read()
                return
            streams = self._server.h2_conn.least_read if self._server is not None else []
            if not streams:
                metrics.UNREAD_STREAMS.inc()
                yield commands.CloseConnection(self.context.client)
                return
            before = self.unread
            for stream in streams:
                yield from self._reset(stream)
                if self.unread <= before * RESET_AT_ONCE:
                    break
            if self.unread >= before:  # h2 resets no stream of a connection that ends
                yield commands.CloseConnection(self.context.client)
                return

    def end_least_read(self) -> None:
        if (player := players.get(self.context.client.id)) is not None:
            bounding = player.server_event(UnreadGrew())
            # Not at once, as mitmproxy's tasks begin: other layers are at work.
            asyncio.Task(bounding, name="bounds what a client leaves unread", eager_start=False)

    def _reset(self, stream_id: int) -> layer.CommandGenerator[None]:
        why = "the client does not read"
        stream = self.streams.get(stream_id)
        if stream is not None:
            metrics.UNREAD_STREAMS.inc()
            _count_slow_watch(stream)
            error = RequestProtocolError(stream_id, why, ErrorCode.CANCEL)
            yield from self.event_to_child(stream, error)
        server = self.connections[self.context.client]
        yield from self.event_to_child(server, ResponseProtocolError(stream_id, why, ErrorCode.CANCEL))


def _is_http2(conn: connection.Connection) -> bool:
    return conn.alpn == b"h2"


def _count_slow_watch(stream: HttpStream) -> None:
    context = context_of(stream.flow)
    if context is not None and context.info.verb == "watch" and context.info.type is not None:
        metrics.SLOW_WATCHERS.labels(context.info.type.group_resource).inc()
