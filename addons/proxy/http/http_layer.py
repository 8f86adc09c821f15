"""mitmproxy's HTTP layer, changed for clients that stay connected for months, as every client-go over HTTP/2 does.

mitmproxy keeps each upstream connection of a client connection for good: one that failed fails every later request,
ended ones pile up, and a request beyond a server's limit of streams waits for another one to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MethodType
from weakref import WeakSet, WeakValueDictionary

from mitmproxy import connection
from mitmproxy.addons import next_layer
from mitmproxy.proxy import commands, events, layer, layers
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import (
    GetHttpConnection,
    GetHttpConnectionCompleted,
    HttpLayer,
    HTTPMode,
    HttpStream,
    SendHttp,
)
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestProtocolError,
    ResponseData,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.tls import ClientTLSLayer
from OpenSSL import SSL

from addons.proxy.http.client_connections import BoundedHttp1Server, BoundedHttp2Server
from addons.proxy.http.http_connections import (
    STREAM_UNREAD,
    KeptHttp1Client,
    LastingH2Connection,
    LastingHttp2Client,
    StreamsTaken,
)
from addons.proxy.http.request_bodies import BodyTime
from addons.proxy.patches import Patch
from addons.requests.request_context import context_of
from addons.telemetry import metrics

MAX_STREAMS = 100
"""Streams on a connection whose server has not sent its limit yet: the default of kube-apiserver and of Go."""

MAX_ALL_UNREAD = 4 * 1024 * 1024
"""Bytes that all client connections may hold; beyond, addresses that hold more than an even share lose streams."""
FAIR_UNREAD = 1024 * 1024
"""Bytes that the connections from one address may hold whatever others do."""

TLS_RECORD = 16 * 1024
"""Bytes of a piece that OpenSSL gets at once: the most of one record. A connection keeps a buffer for the largest that
it was given."""

_layers: WeakValueDictionary[str, LastingHttpLayer] = WeakValueDictionary()


MAX_PEER_STREAMS = 4_000
"""Requests under way from one address to one listener, over all its connections."""

_peers: WeakValueDictionary[str, PeerConnections] = WeakValueDictionary()


class PeerConnections:
    """The connections from one address to one listener; their layers keep it."""

    def __init__(self) -> None:
        self.layers: WeakSet[LastingHttpLayer] = WeakSet()
        self._certain = 0
        """How many more requests fit even if none ends. To count all of them at each request would cost more than some
        requests do."""

    def begin(self) -> None:
        """Note a further request."""
        self._certain -= 1

    @property
    def has_room(self) -> bool:
        """Whether the address may have its latest request."""
        if self._certain < 0:
            self._certain = MAX_PEER_STREAMS - sum(len(each.streams) for each in self.layers)
        return self._certain >= 0

    @property
    def held(self) -> int:
        """Bytes that the hub holds for clients that do not read."""
        return sum(each.held for each in self.layers)


@dataclass(slots=True)
class UnreadGrew(events.Event):
    """Says that the clients of an address leave too much unread since the last piece of a body."""


def _peer_of(client: connection.Client) -> PeerConnections:
    name = f"{client.sockname[1]} {client.peername[0]}"
    peer = _peers.get(name)
    if peer is None:
        peer = _peers[name] = PeerConnections()
    return peer


def layer_of(client_id: str) -> LastingHttpLayer | None:
    """The layer of a client's connection; None before the client has said anything."""
    return _layers.get(client_id)


class LastingHttpLayer(HttpLayer):
    """Drops upstream connections that ended, and opens another one when all others are full."""

    def __init__(self, context: Context, mode: HTTPMode) -> None:
        super().__init__(context, mode)
        self._limit = MAX_STREAMS
        """The limit that a server last sent; it counts for connections whose server has not sent one yet."""
        self._has_served = False
        self._stalled: set[connection.Connection] = set()
        """Connections of HTTP/2 with streams whose data the other side has not taken."""
        self._tls = next((each for each in context.layers if isinstance(each, ClientTLSLayer)), None)
        """The layer that has the client's TLS."""
        _layers[context.client.id] = self
        self.peer = _peer_of(context.client)
        self.peer.layers.add(self)

    def let_go(self) -> None:
        """Drop what waits for anybody: the client's connection has ended."""
        for each in self.connections:
            protocol = self._protocol_of(each)
            if isinstance(protocol, (LastingHttp2Client, BoundedHttp2Server)):
                protocol.h2_conn.let_go()
        self.streams.clear()
        self.connections.clear()
        self.command_sources.clear()
        self._tls = None

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        self._has_served = True
        self.peer.begin()
        yield from super().make_stream(stream_id)

    def waits_since(self, connected: float) -> float | None:
        """Since when the hub waits for a request, or for the rest of one that it has answered; None where it does not.

        By the monotonic clock.
        """
        if not self._has_served:
            return connected
        server = self.connections.get(self.context.client)
        return server.waits_since if isinstance(server, BoundedHttp1Server) else None

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Wakeup) and event.command not in self.command_sources:
            return
        if isinstance(event, UnreadGrew):
            yield from self._bound_unread()
            return
        if isinstance(event, BodyTime):
            for each in list(self.streams.values()):
                yield from self.event_to_child(each, event)
            return
        yield from super()._handle_event(event)
        # This runs for each event of each watch: connections of HTTP/1.1 have neither backlogs nor windows.
        came_from = event.connection if isinstance(event, events.DataReceived) else None
        if came_from is not None and came_from is not self.context.client and _is_http2(self.context.client):
            yield from self._bound_unread()
        if self._stalled or (came_from is not None and _is_http2(came_from)):
            yield from self._open_windows(came_from)

    def body_bytes(self, stream: HttpStream, data: bytes) -> Iterator[bytes]:
        """What the client's connection sends for a piece of a response's body, as mitmproxy's layers make it.

        The piece goes through the layers that change it: the stream's own, the protocol's and that of TLS. The others
        hand on what they get, and did so at half the cost of an event of a watch.
        """
        protocol = self.connections[self.context.client]
        for made in stream.state_stream_response_body(ResponseData(stream.stream_id, data)):
            assert isinstance(made, SendHttp)
            for plain in protocol._handle_event(made.event):
                assert isinstance(plain, commands.SendData)
                if self._tls is None:
                    yield plain.data
                    continue
                for at in range(0, len(plain.data), TLS_RECORD):
                    for sealed in self._tls.send_data(plain.data[at : at + TLS_RECORD]):
                        assert isinstance(sealed, commands.SendData)
                        yield sealed.data

    @property
    def of_http2(self) -> tuple[LastingH2Connection, SSL.Connection | None] | None:
        """h2's side of a client of HTTP/2, and that of TLS; None for a client of HTTP/1.1."""
        if self._server is None:
            return None
        return self._server.h2_conn, self._tls.tls if self._tls is not None else None

    def unread_on(self, stream: int) -> int:
        """Bytes of a stream that the client has no room for. A client of HTTP/1.1 makes its socket wait."""
        server = self._server
        return server.h2_conn.unread_on(stream) if server is not None else 0

    def room(self, conn: connection.Connection) -> int:
        """Bytes that the other side has room for, of what would be read from this connection of HTTP/1.1.

        A connection of HTTP/2 has room but while it waits for its turn: each of its streams has a window.
        """
        if conn is self.context.client:
            return 0 if self._client_is_ahead() else STREAM_UNREAD
        if not _is_http2(self.context.client):
            return STREAM_UNREAD  # a client of HTTP/1.1 makes its socket wait
        upstream, server = self._protocol_of(conn), self._server
        if not isinstance(upstream, KeptHttp1Client) or server is None or upstream.stream_id is None:
            return STREAM_UNREAD
        return STREAM_UNREAD - server.h2_conn.unread_on(upstream.stream_id)

    @property
    def unread(self) -> int:
        """Bytes that a client of HTTP/2 has no room for."""
        server = self._server
        return server.h2_conn.unread if server is not None else 0

    @property
    def held(self) -> int:
        """Bytes that the hub holds because a client of HTTP/2 does not read."""
        server = self._server
        return server.h2_conn.held if server is not None else 0

    @property
    def holds_too_much(self) -> bool:
        """Whether a stream of this client of HTTP/2 must end, for what the clients of its address leave unread."""
        return self.unread > 0 and self.peer.held > FAIR_UNREAD and _is_unfair(self.peer)

    @property
    def _server(self) -> BoundedHttp2Server | None:
        """The hub's side of the client's connection, where that is HTTP/2."""
        found = self.connections.get(self.context.client)
        return found if isinstance(found, BoundedHttp2Server) else None

    def _client_is_ahead(self) -> bool:
        """Whether a client waits for its turn, or one of HTTP/1.1 sends more than its server of HTTP/2 reads."""
        own = self.connections.get(self.context.client)
        if isinstance(own, (BoundedHttp1Server, BoundedHttp2Server)) and own.waits:
            return True
        if self._server is not None:
            return False
        upstream = (self._protocol_of(each) for each in self.connections if each is not self.context.client)
        return any(
            each.h2_conn.unread > STREAM_UNREAD for each in upstream if isinstance(each, LastingHttp2Client)
        )

    def _protocol_of(self, conn: connection.Connection) -> layer.Layer | None:
        found = self.connections.get(conn)
        return found.context.layers[-1] if found is not None else None

    def _open_windows(self, came_from: connection.Connection | None) -> layer.CommandGenerator[None]:
        """Let peers of HTTP/2 send on, on each stream whose data the other side has taken."""
        for conn in self._stalled | ({came_from} if came_from is not None else set()):
            self._stalled.discard(conn)
            protocol = self._protocol_of(conn)
            if not isinstance(protocol, (LastingHttp2Client, BoundedHttp2Server)):
                continue
            untaken = protocol.h2_conn.untaken
            taken = [each for each in untaken if self._is_taken(protocol, each)]
            if len(taken) < len(untaken):
                self._stalled.add(conn)
            if taken:
                yield from self.event_to_child(self.connections[conn], StreamsTaken(0, taken))

    def _is_taken(self, protocol: LastingHttp2Client | BoundedHttp2Server, number: int) -> bool:
        """Whether the other side has room for more of a stream; `number` is the connection's own."""
        if isinstance(protocol, LastingHttp2Client):
            theirs = protocol.their_stream_id.get(number)
            stream, server = self.streams.get(theirs or 0), self._server
            unread = server.h2_conn.unread_on(theirs or 0) if server is not None else 0
        else:
            stream = self.streams.get(number)
            upstream = self._protocol_of(stream.context.server) if stream is not None else None
            unread = upstream.unread_of(number) if isinstance(upstream, LastingHttp2Client) else 0
        if stream is None:
            return True
        # mitmproxy collects without end what comes while the addons think about a stream.
        return unread <= STREAM_UNREAD and stream._paused is None

    def _bound_unread(self) -> layer.CommandGenerator[None]:
        """Reset the streams that hold most, while all clients leave too much unread, and this one's address most."""
        while self.holds_too_much:
            assert self._server is not None
            stream = self._server.h2_conn.least_read
            assert stream is not None
            yield from self._reset(stream)

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

    def get_connection(self, event: GetHttpConnection, *, reuse: bool = True) -> layer.CommandGenerator[None]:
        self._forget_ended()
        suitable = [each for each in self.connections if event.connection_spec_matches(each)]
        idle = next(filter(self._is_idle, suitable), None) if reuse else None
        if idle is not None:
            stream = self.command_sources.pop(event)
            yield from self.event_to_child(stream, GetHttpConnectionCompleted(event, (idle, None)))
            return
        full = [each for each in suitable if self._is_full(each)]
        for each in full:  # mitmproxy takes the first that is suitable
            self.connections[each] = self.connections.pop(each)
        yield from super().get_connection(event, reuse=reuse and len(full) < len(suitable))

    def _forget_ended(self) -> None:
        ended = [each for each in self.connections if _has_ended(each)]
        if ended:
            used = {id(stream.context.server) for stream in self.streams.values()}
            for each in ended:
                if id(each) not in used and each not in self.waiting_for_establishment:
                    self._forget(each)

    def _forget(self, ended: connection.Connection) -> None:
        protocol = self._protocol_of(ended)
        if isinstance(protocol, LastingHttp2Client):
            protocol.h2_conn.let_go()
        top = self.connections.pop(ended)
        layers = top.context.layers
        take_apart(layers[layers.index(self) + 1 :])
        # mitmproxy wakes a connection of HTTP/2 each minute for a ping.
        for command in [each for each, source in self.command_sources.items() if source is top]:
            del self.command_sources[command]

    def _is_idle(self, conn: connection.Connection) -> bool:
        """Whether a connection of HTTP/1.1 waits for its next request."""
        if not conn.connected or conn in self.waiting_for_establishment:
            return False
        client = self.connections[conn].context.layers[-1]
        return isinstance(client, KeptHttp1Client) and client.stream_id is None

    def _is_full(self, conn: connection.Connection) -> bool:
        waiting = self.waiting_for_establishment.get(conn)
        if waiting is not None:
            return len(waiting) >= self._limit
        client = self.connections[conn].context.layers[-1]
        if not isinstance(client, LastingHttp2Client):
            return False
        client.forget(self.streams.keys())
        if client.limit is not None:
            self._limit = client.limit
        return client.is_leaving or client.open_streams >= self._limit


def take_apart(layers: Iterable[layer.Layer]) -> None:
    """Drop what makes cycles of these layers. No event may reach them from here on."""
    for each in layers:
        each._paused = None
        each._paused_event_queue.clear()
        each.context.layers.clear()
        for name in [name for name, value in vars(each).items() if isinstance(value, MethodType)]:
            delattr(each, name)


def _is_http2(conn: connection.Connection) -> bool:
    return conn.alpn == b"h2"


def _is_unfair(peer: PeerConnections) -> bool:
    """Whether all addresses together leave too much unread, and this one more than an even share of what they may."""
    held = [each.held for each in _peers.values()]
    holding = sum(1 for each in held if each)
    return sum(held) > MAX_ALL_UNREAD and peer.held * holding > MAX_ALL_UNREAD


def _count_slow_watch(stream: HttpStream) -> None:
    context = context_of(stream.flow)
    if context is not None and context.info.verb == "watch" and context.info.type is not None:
        metrics.SLOW_WATCHERS.labels(context.info.type.group_resource).inc()


def _has_ended(conn: connection.Connection) -> bool:
    """Whether the connection could not be opened, or was closed and mitmproxy has processed its end."""
    if not isinstance(conn, connection.Server) or conn.connected:
        return False
    return conn.timestamp_end is not None or (conn.error is not None and conn.timestamp_tcp_setup is None)


SHOWN_BY = "tests/addons/proxy/http/test_http_layer.py::test_a_server_that_comes_back_is_connected_to_again"
WHY = "mitmproxy never connects again to a server that once refused a connection of this client"
PATCHES = (
    Patch(next_layer, "HttpLayer", LastingHttpLayer, "(context, mode)", WHY, SHOWN_BY),
    Patch(layers, "HttpLayer", LastingHttpLayer, "(context, mode)", WHY, SHOWN_BY),
)
