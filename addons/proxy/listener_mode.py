"""A listener of the hub as a mode of mitmproxy, `hub:plain@127.0.0.1:10261`, and the server of its connections."""

from __future__ import annotations

import asyncio
from typing import Any

from mitmproxy import connection
from mitmproxy.proxy import layer, mode_servers, mode_specs
from mitmproxy.proxy.context import Context

from addons.requests.caller import Listener
from addons.server.accept import Accepted
from addons.server.messages import NOWHERE
from addons.settings import Settings
from addons.startup.handed_sockets import ACCEPTED_AT_ONCE, BACKLOG, handed


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
        """The state of a reverse proxy, with the listener's address: any mitmproxy reads a flow that was saved with
        that."""
        host, port = NOWHERE
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
    """Return the listener of a client; None if it is not the hub's."""
    return client.proxy_mode.listener if isinstance(client.proxy_mode, HubMode) else None


class HubInstance(mode_servers.AsyncioServerInstance[HubMode]):
    """Listens, on a socket that is open already where there is one for the address, and serves connections itself."""

    def make_top_layer(self, context: Context) -> layer.Layer:
        """Not used: mitmproxy's layers serve none of the hub's clients."""
        raise NotImplementedError

    _open: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> list[Any]:
        loop, sock = asyncio.get_running_loop(), handed.at(host, port)
        if sock is None:
            self._open = await loop.create_server(self._accepted, host or None, port)
        else:
            # asyncio takes one number for the kernel's queue, and for the connections that it accepts at once.
            self._open = await loop.create_server(self._accepted, sock=sock, backlog=ACCEPTED_AT_ONCE)
            sock.listen(BACKLOG)
        return [self._open]

    def stop_accepting(self) -> None:
        """Accept no more connections; open ones continue."""
        if self._open is not None:
            self._open.close()

    def _accepted(self) -> Accepted:
        return Accepted(self.mode, self.mode.listener, self.manager.register_connection)
