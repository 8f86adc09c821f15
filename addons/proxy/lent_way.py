"""The way to the cloud that the peer port lends: the CONNECT of another hub, and what passes after it.

Only the first thing that a connection says can ask for a way, by HTTP/1.1. A CONNECT elsewhere is refused as malformed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from mitmproxy import connection
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode

from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.messages import request_of_lines
from addons.proxy.hub_handler import HubHandler, handler_of
from addons.requests.exchange.error_responses import error_response
from addons.requests.exchange.lent_tunnel import Lent, LentTunnel
from addons.requests.exchange.request_head import headers_too_large
from addons.telemetry import metrics
from kube.errors import StatusError, bad_request
from kube.http.proxies import END

METHOD = b"CONNECT "
MAX_HEAD = 8 * 1024
"""Bytes of the head of a CONNECT: a borrower sends a hundred."""
_open: WeakValueDictionary[str, Carrying] = WeakValueDictionary()
"""Those that lead to a server, by the client's id."""


@dataclass(slots=True)
class AskedWay:
    """What a hub asks for, and what it gets: a way, or a refusal."""

    client: connection.Client
    headers: tuple[tuple[str, str], ...]
    host: str
    port: int
    lent: Lent | None = None
    refusal: StatusError | None = None


@dataclass(slots=True)
class ServerSaid(events.Event):
    """What goes to the client of a lent way."""

    data: bytes
    is_last: bool


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
            way = _parse(self.context.client, self._head)
        except StatusError as error:
            metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
            yield from refuse(self.context.client, error)
            return
        yield LendWayHook(way)
        if way.lent is None:
            assert way.refusal is not None
            yield from refuse(self.context.client, way.refusal)
            return
        yield from self._go_on_as(Carrying(self.context, way.lent))


class Carrying(layer.Layer):
    """Hands on what either side says. One that ends ends both."""

    def __init__(self, context: Context, lent: Lent) -> None:
        super().__init__(context)
        borrower = handler_of(context.client.id)
        assert borrower is not None, "who asks is there"
        self._tunnel = LentTunnel(lent, borrower, partial(_tell, borrower))

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        client = self.context.client
        if isinstance(event, events.Start):
            self._tunnel.begin()
        elif isinstance(event, ServerSaid):
            if event.data:
                yield commands.SendData(client, event.data)
            if event.is_last:
                yield commands.CloseConnection(client)
            else:
                _open[client.id] = self
        elif isinstance(event, events.DataReceived):
            self._tunnel.send(event.data)
        elif isinstance(event, events.ConnectionClosed):
            self._tunnel.close()
            yield commands.CloseConnection(client)


async def _tell(borrower: HubHandler, data: bytes, is_last: bool) -> None:
    await borrower.server_event(ServerSaid(data, is_last))


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
