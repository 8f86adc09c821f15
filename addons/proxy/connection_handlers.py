"""Reaches into mitmproxy's connection handlers: each has one client connection and its upstream connections."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from mitmproxy import connection, ctx
from mitmproxy.addons.proxyserver import Proxyserver

from addons.proxy.http.http_connections import STREAMS_PER_CLIENT


def allow_many_connections(client: connection.Client) -> None:
    """Let the client's handler open an upstream connection for each stream.

    mitmproxy's limit of 5 for each address stalls the sixth watch of an HTTP/2 client on a server of HTTP/1.1;
    `test_mitmproxys_own_limit_is_what_this_widens` tells when it is another.
    """
    handler = proxyserver().connections.get(client.id)
    if handler is not None:
        handler.max_conns = defaultdict(lambda: asyncio.Semaphore(STREAMS_PER_CLIENT))


def forget_failed(client: connection.Client, server: connection.Server) -> None:
    """Drop an upstream connection that could not be opened; mitmproxy keeps it until the client leaves.

    `test_mitmproxy_itself_keeps_a_connection_that_could_not_be_opened` tells when it no longer does.
    """
    handler = proxyserver().connections.get(client.id)
    if handler is not None:
        handler.transports.pop(server, None)


def cut(matches: Callable[[connection.Server], bool]) -> int:
    """Close all upstream connections that match; their number. mitmproxy has no public way to close one."""
    closed = 0
    for handler in list(proxyserver().connections.values()):
        for conn, transport in list(handler.transports.items()):
            if isinstance(conn, connection.Server) and transport.handler is not None and matches(conn):
                transport.handler.cancel("cut by the hub")
                closed += 1
    return closed


def close_client(client_id: str, why: str) -> bool:
    """Close a client's connection; whether there was one."""
    handler = proxyserver().connections.get(client_id)
    transport = handler.transports.get(handler.client) if handler is not None else None
    if transport is None or transport.handler is None:
        return False
    transport.handler.cancel(why)
    return True


def proxyserver() -> Proxyserver:
    """mitmproxy's addon that has the listeners and the handlers."""
    addon = ctx.master.addons.get("proxyserver")
    if not isinstance(addon, Proxyserver):
        raise RuntimeError("mitmproxy runs without its proxyserver addon")
    return addon
