"""The way to the cloud that the peer port lends: the CONNECT of another hub, and what passes after it.

Only the first thing that a connection says can ask for a way, by HTTP/1.1. A CONNECT elsewhere is refused as malformed.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from mitmproxy import connection
from mitmproxy.proxy import commands, events, layer, tunnel
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.tls import ServerTLSLayer

from addons.link.servers import ProxyHost, ServerHost
from addons.proxy.http.error_responses import error_response
from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.messages import request_of_lines
from addons.proxy.http.request_head import headers_too_large
from addons.telemetry import metrics
from kube.errors import StatusError, bad_request
from kube.http.proxies import END, Proxy

METHOD = b"CONNECT "
MAX_HEAD = 8 * 1024
"""Bytes of the head of a CONNECT: a borrower sends a hundred."""
OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"

_open: WeakValueDictionary[str, Carrying] = WeakValueDictionary()
"""Those that lead to a server, by the client's id."""


@dataclass(slots=True)
class AskedWay:
    """What a hub asks for, and what it gets: a server's address, or a refusal."""

    client: connection.Client
    headers: tuple[tuple[str, str], ...]
    host: str
    port: int
    address: tuple[ServerHost, int] | None = None
    refusal: StatusError | None = None


@dataclass
class LendWayHook(StartHook):
    """Another hub of the pool asks for a way to the cloud."""

    asked: AskedWay


def is_open(client_id: str) -> bool:
    """Whether a connection of the peer port leads to a server."""
    return client_id in _open


class PeerLayer(layer.Layer):
    """The first layer within the TLS of the peer port: lends a way where a CONNECT comes first, else serves HTTP."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._head = b""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.ConnectionClosed):
            yield commands.CloseConnection(self.context.client)
        elif isinstance(event, events.DataReceived):
            self._head += event.data
            if not self._head.startswith(METHOD):
                if not METHOD.startswith(self._head):
                    yield from self._go_on_as(HubHttpLayer(self.context, HTTPMode.transparent))
            elif END in self._head or len(self._head) > MAX_HEAD:
                yield from self._lend()

    def _go_on_as(self, beyond: layer.Layer) -> layer.CommandGenerator[None]:
        self._handle_event = beyond.handle_event  # type: ignore[method-assign]  # as mitmproxy's own first layers
        yield from beyond.handle_event(events.Start())
        if isinstance(beyond, HubHttpLayer):
            yield from beyond.handle_event(events.DataReceived(self.context.client, self._head))

    def _lend(self) -> layer.CommandGenerator[None]:
        try:
            asked = _parse(self.context.client, self._head)
        except StatusError as error:
            metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
            yield from refuse(self.context.client, error)
            return
        yield LendWayHook(asked)
        if asked.address is None:
            assert asked.refusal is not None
            yield from refuse(self.context.client, asked.refusal)
            return
        context = self.context.fork()
        context.server = connection.Server(address=asked.address)
        stack = tunnel.LayerStack()
        lay_way(stack, context)
        stack /= Carrying(context)
        yield from self._go_on_as(stack[0])


class Carrying(layer.Layer):
    """Opens the connection to the server, and hands on what either side says. One that ends ends both."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        client, server = self.context.client, self.context.server
        if isinstance(event, events.Start):
            error = yield commands.OpenConnection(server)
            if error:
                yield commands.SendData(client, error_response(502, error))
                yield commands.CloseConnection(client)
                return
            _open[client.id] = self
            yield commands.SendData(client, OPENED)
        elif isinstance(event, events.DataReceived):
            yield commands.SendData(server if event.connection is client else client, event.data)
        elif isinstance(event, events.ConnectionClosed):
            yield commands.CloseConnection(server)
            yield commands.CloseConnection(client)


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


def refuse(client: connection.Client, error: StatusError) -> layer.CommandGenerator[None]:
    """Answer with a Status, and hear no more."""
    yield commands.SendData(client, error_response(error.code, error.message))
    yield commands.CloseConnection(client)


def _parse(client: connection.Client, head: bytes) -> AskedWay:
    """StatusError 400 or 431 for anything but the head of a CONNECT, and nothing behind it."""
    head, end, rest = head.partition(END)
    if not end or len(head) > MAX_HEAD:
        raise headers_too_large()
    try:
        request = request_of_lines(head.split(b"\r\n"))
    except ValueError as error:
        raise bad_request(f"the head of the request is malformed: {error}") from None
    if rest or request.http_version != "HTTP/1.1" or not request.port:
        raise bad_request(
            "a CONNECT is of HTTP/1.1, for a host and a port, and nothing follows before its answer"
        )
    headers = tuple((name, value) for name, value in request.headers.items(multi=True))
    return AskedWay(client, headers, request.host.lower(), request.port)
