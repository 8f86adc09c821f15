"""Bounds the number of clients' connections, and the time until their first request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mitmproxy import connection

from addons.proxy.listener_mode import listener_of
from addons.server.accept import accepted, close_client
from addons.server.limits.client_addresses import address_of
from addons.server.limits.open_connections import OpenConnections
from addons.startup.descriptors import limit_accept_logs
from addons.telemetry import metrics
from addons.telemetry.background import background

FIRST_REQUEST = 30.0
"""Seconds that a client has for its handshake and its first request, for the head of each request, and for the rest of
an HTTP/1.1 request that the hub has already answered."""
SWEEP = 5.0
"""Seconds between checks for clients that exceed that time."""


class Connections:
    """Closes connections that are too many or too slow."""

    name = "edgehub-connections"

    def __init__(self, opened: OpenConnections, clock: Callable[[], float] = time.monotonic) -> None:
        self._open = opened
        self._clock = clock
        self._since: dict[str, float] = {}
        """The connection time of each client, by connection id."""
        self._sweep: asyncio.Task[None] | None = None

    def running(self) -> None:
        limit_accept_logs(asyncio.get_running_loop())
        self._sweep = background(self._sweep_regularly(), "late clients")

    def done(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()

    def client_connected(self, client: connection.Client) -> None:
        self._since[client.id] = self._clock()
        if why := self._open.opened(client.id, listener_of(client), address_of(client)):
            client.error = why

    def client_disconnected(self, client: connection.Client) -> None:
        self._since.pop(client.id, None)
        self._open.closed(client.id)

    def _close_late(self) -> int:
        """Close the clients that exceed FIRST_REQUEST in a first request, a head or a surplus body; return how many."""
        now, closed = self._clock(), 0
        for client_id, since in list(self._since.items()):
            waits_since = accepted[client_id].waits_since(since) if client_id in accepted else since
            if waits_since is not None and now - waits_since > FIRST_REQUEST:
                closed += close_client(client_id, "no request came in time")
        if closed:
            metrics.CONNECTIONS_REFUSED.labels("late").inc(closed)
        return closed

    async def _sweep_regularly(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self._close_late()
