"""What mitmproxy's connection handlers need for Kubernetes: room for many watches, and an end for dead connections.

Also makes the answers that mitmproxy writes by itself (a malformed request, a server that cannot be reached) a Status.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable

from mitmproxy import connection, ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.proxy import http_connections, http_layer, upstream_failover
from addons.proxy.fail_closed import guarded_connection
from addons.proxy.http_connections import STREAMS_PER_CLIENT
from kube.errors import StatusError, bad_request, entity_too_large, unavailable


class Connections:
    """Reaches into the `proxyserver` addon, which has no public way to either."""

    name = "edgehub-connections"

    def load(self, _loader: object) -> None:
        vars(_http1)["make_error_response"] = _status_response
        vars(_http2)["format_error"] = _status_body
        for module in (upstream_failover, http_connections, http_layer):
            module.install()

    @guarded_connection
    def client_connected(self, client: connection.Client) -> None:
        handler = _proxyserver().connections.get(client.id)
        if handler is not None:
            # mitmproxy's 5 would stall the sixth watch of an HTTP/2 client on a server of HTTP/1.1.
            handler.max_conns = defaultdict(lambda: asyncio.Semaphore(STREAMS_PER_CLIENT))

    @guarded_connection
    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """A connection that could not be opened is nothing to keep; mitmproxy would, until the client leaves."""
        handler = _proxyserver().connections.get(data.client.id)
        if handler is not None:
            handler.transports.pop(data.server, None)

    def cut(self, matches: Callable[[connection.Server], bool]) -> int:
        """Close the upstream connections that match; how many there were."""
        cut = 0
        for handler in list(_proxyserver().connections.values()):
            for conn, transport in list(handler.transports.items()):
                if isinstance(conn, connection.Server) and transport.handler is not None and matches(conn):
                    transport.handler.cancel("cut by the hub")
                    cut += 1
        return cut


def _proxyserver() -> Proxyserver:
    addon = ctx.master.addons.get("proxyserver")
    if not isinstance(addon, Proxyserver):
        raise RuntimeError("mitmproxy runs without its proxyserver addon")
    return addon


def _status(code: int, message: str) -> StatusError:
    if code == 413:
        return entity_too_large(message)
    if code < 500:
        error = bad_request(message)
        return StatusError(code, error.reason, message)
    return (
        unavailable(f"the cloud cannot be reached: {_brief(message)}")
        if code == 502
        else unavailable(message)
    )


def _brief(message: str) -> str:
    return re.sub(r"\s+", " ", message)[:200]


def _status_body(code: int, message: str) -> bytes:
    body = _status(code, message).to_dict()
    return json.dumps({**body, "code": code}).encode()


def _status_response(code: int, message: str = "") -> bytes:
    body = _status_body(code, message)
    reason = {400: "Bad Request", 413: "Request Entity Too Large", 502: "Bad Gateway", 504: "Gateway Timeout"}
    head = (
        f"HTTP/1.1 {code} {reason.get(code, 'Error')}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
