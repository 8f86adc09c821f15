"""The part of the hub that bounds connections: of an address, of the process, and in the time to a first request.

What one port may use up is not all: a quarter of the descriptors is left to the plain port, where kubelet is, and to
the hub's own connections, disk and log.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable
from typing import Any

from mitmproxy import connection, tcp

from addons.proxy.handlers.hub_handler import close_client, handler_of
from addons.proxy.http.http_layer import layer_of
from addons.proxy.http.request_bodies import BodyTime
from addons.proxy.http.request_stream import RequestStream
from addons.proxy.lent_way import is_open
from addons.proxy.listener_mode import listener_of
from addons.requests.caller import Listener
from addons.requests.exchange.client_addresses import MAX_CONNECTIONS, ClientAddress, address_of
from addons.telemetry import metrics
from addons.telemetry.background import background

MOST_DESCRIPTORS = 65_536
"""Descriptors that the hub asks for at the start, where the system allows as many."""
RESERVED_SHARE = 4
"""One part in so many of the descriptors is out of reach for the TLS port's clients."""
OWN_DESCRIPTORS = 64
"""Descriptors that no client's connection gets: listeners, disk, log."""
FIRST_REQUEST = 30.0
"""Seconds that a client has for its handshake and its first request, for the head of each request, and for the rest of
a request of HTTP/1.1 that the hub has answered already."""
SWEEP = 5.0
"""Seconds between looks for clients, and for bodies of requests, that took longer."""
ACCEPT_LOG = 60.0
"""Seconds between lines in the log about connections that could not be accepted."""

logger = logging.getLogger(__name__)


def raise_descriptor_limit() -> int:
    """Raise the process' soft limit on descriptors as far as the system allows; the limit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else MOST_DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class Connections:
    """Counts connections as they come and go, and ends those that are too many, or too late."""

    name = "edgehub-connections"

    def __init__(self, descriptors: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._descriptors = descriptors
        self._clock = clock
        self._clients: dict[str, tuple[float, ClientAddress]] = {}
        """When and from where each client connected, by the connection's id."""
        self._own: Callable[[], int] = lambda: 0
        """How many connections to servers the hub's own client has."""
        self._sweep: asyncio.Task[None] | None = None

    def running(self) -> None:
        quieten_accept(asyncio.get_running_loop())
        self._sweep = background(self._sweep_regularly(), "late clients")

    def done(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()

    def client_connected(self, client: connection.Client) -> None:
        address = address_of(client)
        self._clients[client.id] = self._clock(), address
        address.connections += 1
        if not _is_reserved(client) and address.connections > MAX_CONNECTIONS:
            metrics.CONNECTIONS_REFUSED.labels("peer").inc()
            client.error = "too many connections from this address"
        elif not self.has_room(client):
            metrics.CONNECTIONS_REFUSED.labels("descriptors").inc()
            client.error = "too many connections"

    def client_disconnected(self, client: connection.Client) -> None:
        if (left := self._clients.pop(client.id, None)) is not None:
            left[1].connections -= 1

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Drop what passes through an upgraded connection: mitmproxy would keep all of an exec or a copy."""
        flow.messages.clear()

    def count_own(self, own: Callable[[], int]) -> None:
        """Count the connections of the hub's own client among all others."""
        self._own = own

    def has_room(self, client: connection.Client) -> bool:
        """Whether one more connection fits, of this client or to a server for it."""
        used = len(self._clients) + self._own() + OWN_DESCRIPTORS
        reserved = 0 if _is_reserved(client) else self._descriptors // RESERVED_SHARE
        return used <= self._descriptors - reserved

    def _close_late(self) -> int:
        """Close the clients for whose first request, next head or surplus body the hub waits too long; how many."""
        now, closed = self._clock(), 0
        for client_id, (since, _) in list(self._clients.items()):
            layer = layer_of(client_id)
            if layer is None and is_open(client_id):
                continue
            waits_since = since if layer is None else layer.waits_since(since)
            if waits_since is not None and now - waits_since > FIRST_REQUEST:
                closed += close_client(client_id, "no request came in time")
        if closed:
            metrics.CONNECTIONS_REFUSED.labels("late").inc(closed)
        return closed

    async def _end_late_bodies(self) -> None:
        """Have no stream hold a body that takes too long: see `RequestStream.is_late`."""
        now = self._clock()
        for client_id in list(self._clients):
            handler, layer = handler_of(client_id), layer_of(client_id)
            streams = layer.streams.values() if layer is not None else ()
            if handler is not None and any(
                isinstance(stream, RequestStream) and stream.is_late(now) for stream in streams
            ):
                await handler.server_event(BodyTime(now))

    async def _sweep_regularly(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self._close_late()
            await self._end_late_bodies()


def _is_reserved(client: connection.Client) -> bool:
    """Whether the client is of the plain port, for whom descriptors are left."""
    return listener_of(client) not in (Listener.TLS, Listener.PEER)


def quieten_accept(loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic) -> None:
    """Log one line a minute, instead of a hundred a second, while no connection can be accepted.

    asyncio itself pauses accepting for a second then, and reports each of its tries.
    """
    others, last = loop.get_exception_handler(), -ACCEPT_LOG

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        if not str(context.get("message", "")).startswith("socket.accept()"):
            (others or type(loop).default_exception_handler)(loop, context)
            return
        metrics.CONNECTIONS_REFUSED.labels("accept").inc()
        if clock() - last >= ACCEPT_LOG:
            last = clock()
            logger.error("connections cannot be accepted: %s", context.get("exception"))

    loop.set_exception_handler(handle)
