"""Bounds the open connections; `addons.proxy` reaches into mitmproxy for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mitmproxy import connection, tcp, tls

from addons.proxy.connection_limits import ConnectionLimits, quieten_accept, raise_descriptor_limit
from addons.proxy.listener_mode import listener_of
from addons.requests.caller import Listener
from addons.telemetry.background import background


class Connections:
    """Bounds connections, and forgets what passes an upgraded one."""

    name = "edgehub-connections"

    def __init__(self) -> None:
        self._limits = ConnectionLimits(raise_descriptor_limit())
        self._sweep: asyncio.Task[None] | None = None

    def running(self) -> None:
        quieten_accept(asyncio.get_running_loop())
        self._sweep = background(self._limits.sweep(), "late clients")

    def done(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()

    def client_connected(self, client: connection.Client) -> None:
        why = self._limits.client_came(client, is_reserved=_is_reserved(client))
        if why:
            client.error = why

    def client_disconnected(self, client: connection.Client) -> None:
        self._limits.client_left(client)

    def count_own(self, own: Callable[[], int]) -> None:
        """Count the connections of the hub's own client among all others."""
        self._limits.own = own

    def has_room(self, client: connection.Client) -> bool:
        """Whether a connection to a server may be opened for a client."""
        return self._limits.has_room(is_reserved=_is_reserved(client))

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Drop what passes through an upgraded connection: mitmproxy would keep all of an exec or a copy."""
        flow.messages.clear()

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Tell the parts of a ClientHello no longer what they are parts of: 22 objects waited for a collection."""
        waiting: list[object] = [data.client_hello._client_hello]
        while waiting:
            found = waiting.pop()
            if isinstance(found, list):
                waiting += found
            elif hasattr(found, "_root"):
                fields = vars(found)
                del fields["_root"], fields["_parent"]
                waiting += fields.values()


def _is_reserved(client: connection.Client) -> bool:
    """Whether the client is of the plain port, for whom descriptors are left."""
    return listener_of(client) not in (Listener.TLS, Listener.PEER)
