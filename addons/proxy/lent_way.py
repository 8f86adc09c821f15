"""The way to the cloud that the peer port lends: the CONNECT of another hub, and what passes after it.

Only the first thing that a connection says can ask for a way, by HTTP/1.1. A CONNECT elsewhere is refused as malformed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode

from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.hub_handler import HubHandler, handler_of
from addons.requests.exchange.error_responses import error_response
from addons.requests.exchange.lent_tunnel import (
    MAX_HEAD,
    METHOD,
    AskedWay,
    Lent,
    LentTunnel,
    parse_connect,
)
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.proxies import END

_open: WeakValueDictionary[str, Carrying] = WeakValueDictionary()
"""Those that lead to a server, by the client's id."""


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
        client = self.context.client
        try:
            way = parse_connect(client.id, client.peername[0], self._head)
        except StatusError as error:
            metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
            refusal: StatusError | None = error
        else:
            yield LendWayHook(way)
            if way.lent is not None:
                yield from self._go_on_as(Carrying(self.context, way.lent))
                return
            refusal = way.refusal
        assert refusal is not None, "who lends nothing says why"
        yield commands.SendData(client, error_response(refusal.code, refusal.message))
        yield commands.CloseConnection(client)


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
