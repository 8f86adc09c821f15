"""Which connection a request goes out on: one with room for it, or another one.

mitmproxy keeps each upstream connection of a client connection for good: one that failed fails every later request,
ended ones pile up, and a request beyond a server's limit of streams waits for another one to end.
"""

from __future__ import annotations

from mitmproxy import connection
from mitmproxy.proxy import commands, events, layer, tunnel
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import (
    GetHttpConnection,
    GetHttpConnectionCompleted,
    HttpClient,
    HttpLayer,
    HTTPMode,
    RegisterHttpConnection,
)
from mitmproxy.proxy.layers.tls import ServerTLSLayer

from addons.link.servers import ProxyHost, ServerHost
from addons.proxy.http.ended_layers import take_apart
from addons.proxy.http.http_connections import HubHttp1Client, HubHttp2Client
from kube.http.proxies import Proxy

MAX_STREAMS = 100
"""Streams on a connection whose server has not sent its limit yet: the default of kube-apiserver and of Go."""


class UpstreamConnections(HttpLayer):
    """Drops upstream connections that ended, and opens another one when all others are full."""

    def __init__(self, context: Context, mode: HTTPMode) -> None:
        super().__init__(context, mode)
        self.beyond: dict[connection.Connection, connection.Connection] = {}
        """The connections to servers that lead through proxies, by those to the proxies."""
        self._limit = MAX_STREAMS
        """The limit that a server last sent; it counts for connections whose server has not sent one yet."""

    def protocol_of(self, conn: connection.Connection) -> layer.Layer | None:
        """The layer that speaks HTTP on a connection."""
        found = self.connections.get(conn)
        return found.context.layers[-1] if found is not None else None

    def get_connection(self, event: GetHttpConnection, *, reuse: bool = True) -> layer.CommandGenerator[None]:
        self._forget_ended()
        suitable = [each for each in self.connections if event.connection_spec_matches(each)] if reuse else []
        found = next(filter(self._is_idle, suitable), None) or next(filter(self._has_room, suitable), None)
        if found is None:
            yield from self._connect(event)
        elif found in self.waiting_for_establishment:
            self.waiting_for_establishment[found].append(event)
        else:
            stream = self.command_sources.pop(event)
            yield from self.event_to_child(stream, GetHttpConnectionCompleted(event, (found, None)))

    def _connect(self, event: GetHttpConnection) -> layer.CommandGenerator[None]:
        context = self.context.fork()
        context.server = connection.Server(address=event.address, transport_protocol=event.transport_protocol)
        stack = tunnel.LayerStack()
        if (outer := lay_way(stack, context)) is not None:
            self.beyond[outer] = context.server
        if event.tls:
            context.server.sni = event.address[0]
            stack /= ServerTLSLayer(context)
        stack /= UpstreamStart(context)
        self.connections[context.server] = stack[0]
        self.waiting_for_establishment[context.server].append(event)
        yield from self.event_to_child(stack[0], events.Start())

    def _forget_ended(self) -> None:
        ended = [each for each in self.connections if _has_ended(each)]
        if ended:
            used = {id(stream.context.server) for stream in self.streams.values()}
            for each in ended:
                is_used = id(each) in used or each in self.waiting_for_establishment
                # One to a proxy goes with the one beyond it, which may have been a moment ago.
                if each in self.connections and not is_used and each not in self.beyond:
                    self._forget(each)

    def _forget(self, ended: connection.Connection) -> None:
        protocol = self.protocol_of(ended)
        if isinstance(protocol, HubHttp2Client):
            protocol.h2_conn.let_go()
        top = self.connections.pop(ended)
        for outer in [each for each, inner in self.beyond.items() if inner is ended]:
            del self.beyond[outer]
            self.connections.pop(outer, None)
        layers = top.context.layers
        take_apart(layers[layers.index(self) + 1 :])
        # mitmproxy wakes a connection of HTTP/2 each minute for a ping.
        for command in [each for each, source in self.command_sources.items() if source is top]:
            del self.command_sources[command]

    def _is_idle(self, conn: connection.Connection) -> bool:
        """Whether a connection of HTTP/1.1 waits for its next request."""
        if not conn.connected or conn in self.waiting_for_establishment:
            return False
        client = self.protocol_of(conn)
        return isinstance(client, HubHttp1Client) and client.stream_id is None

    def _has_room(self, conn: connection.Connection) -> bool:
        """Whether a further request may go out on a connection that others use, or wait for."""
        waiting = self.waiting_for_establishment.get(conn)
        if waiting is not None:
            return len(waiting) < self._limit
        if not conn.connected:
            return False  # it is half-closed at least
        client = self.protocol_of(conn)
        if not isinstance(client, HubHttp2Client):
            return self.context.client.alpn != b"h2"  # a client of HTTP/1.1 has one request under way
        client.forget(self.streams.keys())
        if client.limit is not None:
            self._limit = client.limit
        return not client.is_leaving and client.open_streams < self._limit


def lay_way(stack: tunnel.LayerStack, context: Context) -> connection.Server | None:
    """Put what speaks to the proxy of the context's server on a stack; the connection to it, None where none leads."""
    assert context.server.address is not None
    host = context.server.address[0]
    if not isinstance(host, ServerHost) or host.via is None:
        return None
    outer = connection.Server(address=(ProxyHost(*host.way, via=host.via), host.via.port))
    if host.via.scheme == "https":
        outer.sni = host.via.host
        stack /= ServerTLSLayer(context, outer)
    stack /= ProxyTunnel(context, outer, host.via)
    return outer


class UpstreamStart(HttpClient):
    """Opens a connection, and speaks the protocol that its TLS agreed on."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        error = yield commands.OpenConnection(self.context.server)
        if not error:
            is_http2 = self.context.server.alpn == b"h2"
            self.child_layer = HubHttp2Client(self.context) if is_http2 else HubHttp1Client(self.context)
            self._handle_event = self.child_layer.handle_event  # type: ignore[method-assign]  # as mitmproxy's own
            yield from self.child_layer.handle_event(event)
        yield RegisterHttpConnection(self.context.server, error)


class ProxyTunnel(tunnel.TunnelLayer):
    """Asks the proxy for the server before anything else is said. The layers above speak to the server."""

    def __init__(self, context: Context, outer: connection.Server, proxy: Proxy) -> None:
        super().__init__(context, tunnel_connection=outer, conn=context.server)
        self._proxy = proxy
        self._answer = b""

    def start_handshake(self) -> layer.CommandGenerator[None]:
        assert isinstance(self.conn, connection.Server)
        assert self.conn.address is not None
        yield commands.SendData(self.tunnel_connection, self._proxy.request(*self.conn.address))

    def receive_handshake_data(self, data: bytes) -> layer.CommandGenerator[tuple[bool, str | None]]:
        self._answer += data
        try:
            rest = self._proxy.rest_of(self._answer)
        except ConnectionError as error:
            return False, str(error)
        if rest is None:
            return False, None
        if rest:
            yield from self.receive_data(rest)
        return True, None


def _has_ended(conn: connection.Connection) -> bool:
    """Whether the connection could not be opened, or was closed and mitmproxy has processed its end."""
    if not isinstance(conn, connection.Server) or conn.connected:
        return False
    return conn.timestamp_end is not None or (conn.error is not None and conn.timestamp_tcp_setup is None)
