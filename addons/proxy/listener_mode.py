"""A listener of the hub as a mode of mitmproxy, `hub:plain@127.0.0.1:10261`, and the server of its connections."""

from __future__ import annotations

import asyncio
from typing import Any

from mitmproxy import connection
from mitmproxy.proxy import layer, mode_servers, mode_specs
from mitmproxy.proxy.context import Context

from addons.requests.caller import Listener
from addons.server.accept import Accepted
from addons.server.messages import UNROUTED
from addons.settings import Settings
from addons.startup.handed_sockets import ACCEPT_BATCH, BACKLOG, handed


class HubMode(mode_specs.ProxyMode):
    """Mode `hub:LISTENER@[HOST:]PORT`, with a listener of `addons.requests.caller`."""

    transport_protocol = mode_specs.TCP
    listener: Listener

    def __post_init__(self) -> None:
        """Set the listener. ValueError for an unknown one."""
        self.listener = Listener(self.data)

    @property
    def description(self) -> str:
        return f"edge hub ({self.listener})"

    def get_state(self) -> str:
        """Return the mode as that of a reverse proxy at the listener's address, so that any mitmproxy can read a saved
        flow.
        """
        host, port = UNROUTED
        return f"reverse:http://{host}:{port}@{self.full_spec.rpartition('@')[2]}"


def listener_specs(settings: Settings) -> list[str]:
    """Return the mode specifications of all listeners except the peer port; IPv6 addresses have no brackets."""
    modes = []
    if settings.port:
        modes.append(f"hub:plain@{settings.listen}:{settings.port}")
    if settings.tls_port:
        modes += [f"hub:tls@{address}:{settings.tls_port}" for address in settings.tls_addresses]
    return modes


def peer_spec(settings: Settings) -> str:
    """Return the mode specification of the peer port; "" if it is off. It opens once the hub can serve it."""
    if not settings.peer_port or (settings.mode == "cloud" and settings.peer_clients == "pool"):
        return ""
    return f"hub:peer@{settings.peer_address}:{settings.peer_port}"


def listener_of(client: connection.Client) -> Listener | None:
    """Return the listener of a client; None if the listener is not the hub's."""
    return client.proxy_mode.listener if isinstance(client.proxy_mode, HubMode) else None


class HubInstance(mode_servers.AsyncioServerInstance[HubMode]):
    """Serves the connections of one listener, on a socket that is already open if there is one for its address."""

    def make_top_layer(self, context: Context) -> layer.Layer:
        """Never called: mitmproxy's layers serve none of the hub's clients."""
        raise NotImplementedError

    _open: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> list[Any]:
        loop, sock = asyncio.get_running_loop(), handed.at(host, port)
        if sock is None:
            self._open = await loop.create_server(self._accepted, host or None, port)
        else:
            # asyncio uses `backlog` both for the kernel's queue and for the connections accepted at once.
            self._open = await loop.create_server(self._accepted, sock=sock, backlog=ACCEPT_BATCH)
            sock.listen(BACKLOG)
        return [self._open]

    def stop_accepting(self) -> None:
        """Stop accepting connections; open ones continue."""
        if self._open is not None:
            self._open.close()

    def _accepted(self) -> Accepted:
        return Accepted(self.mode, self.mode.listener, self.manager.register_connection)
