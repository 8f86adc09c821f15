"""A listener of the hub as a mode of mitmproxy's, `hub:plain@127.0.0.1:10261`, and what serves its connections."""

from __future__ import annotations

import asyncio
from typing import Any

from mitmproxy import connection, ctx
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.options import Options
from mitmproxy.proxy import commands, events, layer, mode_servers, mode_specs, tunnel
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.tls import ClientTLSLayer

from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.hub_handler import HubHandler
from addons.proxy.lent_way import PeerLayer
from addons.requests.caller import Listener
from addons.requests.exchange.client_socket import end_with_its_peer
from addons.settings import Settings
from addons.startup.handed_sockets import ACCEPTED_AT_ONCE, BACKLOG, handed
from addons.telemetry import metrics

DEAD_ADDRESS = ("127.0.0.1", 1)
"""Where a request goes that no addon has sent anywhere else. Nothing listens there."""
MAX_HANDSHAKE = 16 * 1024
"""Bytes of a client's TLS handshake before its end. One with a certificate, and a key share that resists quantum
computers, has some 5,000."""
LONGEST_FAULT = 200
"""Characters of what the log says of a handshake."""


class HubMode(mode_specs.ProxyMode):
    """`hub:LISTENER@[HOST:]PORT`, with a listener of `addons.requests.caller`."""

    transport_protocol = mode_specs.TCP
    listener: Listener

    def __post_init__(self) -> None:
        """ValueError for a listener that there is not."""
        self.listener = Listener(self.data)

    @property
    def description(self) -> str:
        return f"edge hub ({self.listener})"

    def get_state(self) -> str:
        """As a reverse proxy, with the listener's address: any mitmproxy reads a flow that was saved with that."""
        host, port = DEAD_ADDRESS
        return f"reverse:http://{host}:{port}@{self.full_spec.rpartition('@')[2]}"


def listener_specs(settings: Settings) -> list[str]:
    """The listeners but the peer port; addresses of IPv6 without brackets."""
    modes = []
    if settings.port:
        modes.append(f"hub:plain@{settings.listen}:{settings.port}")
    if settings.tls_port:
        modes += [f"hub:tls@{address}:{settings.tls_port}" for address in settings.tls_addresses]
    return modes


def peer_spec(settings: Settings) -> str:
    """mitmproxy's mode specification of the peer port; "" where the port is off. It opens when the hub can serve."""
    if not settings.peer_port or (settings.mode == "cloud" and settings.peer_clients == "pool"):
        return ""
    return f"hub:peer@{settings.peer_address}:{settings.peer_port}"


def listener_of(client: connection.Client) -> Listener | None:
    """The listener that a client has called; None for one that is not the hub's."""
    return client.proxy_mode.listener if isinstance(client.proxy_mode, HubMode) else None


class HubInstance(mode_servers.AsyncioServerInstance[HubMode]):
    """Listens, on a socket that was handed over where there is one for the address."""

    def __init__(self, mode: HubMode, manager: mode_servers.ServerManager) -> None:
        super().__init__(mode, manager)
        self._options: Any = OptionsReadOnce(ctx.options)

    def make_top_layer(self, context: Context) -> layer.Layer:
        return FirstLayer(context)

    async def handle_stream(self, reader: Any, writer: Any = None) -> None:
        if self.mode.listener is Listener.PEER:
            end_with_its_peer(writer.get_extra_info("socket"))
        handler = HubHandler(ctx.master, reader, writer, self._options, self.mode)
        handler.layer = self.make_top_layer(handler.layer.context)
        with self.manager.register_connection(handler.client.id, handler):
            await handler.handle_client()

    async def listen(self, host: str, port: int) -> list[Any]:
        sock = handed.at(host, port)
        if sock is None:
            return await super().listen(host, port)
        # asyncio takes one number for the kernel's queue, and for the connections that it accepts at once.
        server = await asyncio.start_server(self.handle_stream, sock=sock, backlog=ACCEPTED_AT_ONCE)
        sock.listen(BACKLOG)
        return [server]


class OptionsReadOnce:
    """mitmproxy's options, each read once until it is changed. mitmproxy copies a value twice at each read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        options.changed.connect(self._changed)

    def __getattr__(self, name: str) -> Any:
        value = vars(self)[name] = getattr(self._options, name)
        return value

    def _changed(self, updated: set[str]) -> None:
        for name in updated:
            vars(self).pop(name, None)


class HubTLSLayer(ClientTLSLayer):
    """Ends a handshake for which too much comes. mitmproxy collects the first message, and logs it, whole."""

    _received = 0
    """Bytes of the handshake."""

    def receive_handshake_data(self, data: bytes) -> layer.CommandGenerator[tuple[bool, str | None]]:
        self._received += len(data)
        done, fault = yield from super().receive_handshake_data(data)
        if not done and fault is None and self._received > MAX_HANDSHAKE:
            metrics.CONNECTIONS_REFUSED.labels("handshake").inc()
            fault = f"it has more than {MAX_HANDSHAKE} bytes"
        return done, fault[:LONGEST_FAULT] if fault is not None else None


class FirstLayer(layer.Layer):
    """Takes HTTP, in TLS where the client begins with that. Its server is the dead address."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            self.context.server.address = DEAD_ADDRESS
        elif isinstance(event, events.DataReceived):
            stack = tunnel.LayerStack()
            if starts_like_tls_record(event.data):
                stack /= HubTLSLayer(self.context)
            if listener_of(self.context.client) is Listener.PEER:
                stack /= PeerLayer(self.context)
            else:
                stack /= HubHttpLayer(self.context, HTTPMode.transparent)
            self._handle_event = stack[0].handle_event  # type: ignore[method-assign]  # as mitmproxy's own first layers
            yield from stack[0].handle_event(events.Start())
            yield from stack[0].handle_event(event)
        elif isinstance(event, events.ConnectionClosed):
            yield commands.CloseConnection(self.context.client)
