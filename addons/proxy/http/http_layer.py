"""mitmproxy's HTTP layer, changed for clients that stay connected for months, as every client-go over HTTP/2 does.

mitmproxy keeps each upstream connection of a client connection for good: one that failed fails every later request,
ended ones pile up, and a request beyond a server's limit of streams waits for another one to end.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from mitmproxy import connection
from mitmproxy.addons import next_layer
from mitmproxy.proxy import layer, layers
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import (
    GetHttpConnection,
    GetHttpConnectionCompleted,
    HttpLayer,
    HTTPMode,
)

from addons.proxy.http.client_connections import BoundedHttp1Server
from addons.proxy.http.http_connections import KeptHttp1Client, LastingHttp2Client
from addons.proxy.patches import Patch

MAX_STREAMS = 100
"""Streams on a connection whose server has not sent its limit yet: the default of kube-apiserver and of Go."""


_layers: WeakValueDictionary[str, LastingHttpLayer] = WeakValueDictionary()


def layer_of(client_id: str) -> LastingHttpLayer | None:
    """The layer of a client's connection; None before the client has said anything."""
    return _layers.get(client_id)


class LastingHttpLayer(HttpLayer):
    """Drops upstream connections that ended, and opens another one when all others are full."""

    def __init__(self, context: Context, mode: HTTPMode) -> None:
        super().__init__(context, mode)
        self._limit = MAX_STREAMS
        """The limit that a server last sent; it counts for connections whose server has not sent one yet."""
        self._has_served = False
        _layers[context.client.id] = self

    def make_stream(self, stream_id: int) -> layer.CommandGenerator[None]:
        self._has_served = True
        yield from super().make_stream(stream_id)

    def waits_since(self, connected: float) -> float | None:
        """Since when the hub waits for the client's request, by the monotonic clock; None where it does not."""
        if not self._has_served:
            return connected
        server = self.connections.get(self.context.client)
        return server.head_since if isinstance(server, BoundedHttp1Server) else None

    def get_connection(self, event: GetHttpConnection, *, reuse: bool = True) -> layer.CommandGenerator[None]:
        self._forget_ended()
        suitable = [each for each in self.connections if event.connection_spec_matches(each)]
        idle = next(filter(self._is_idle, suitable), None) if reuse else None
        if idle is not None:
            stream = self.command_sources.pop(event)
            yield from self.event_to_child(stream, GetHttpConnectionCompleted(event, (idle, None)))
            return
        full = [each for each in suitable if self._is_full(each)]
        for each in full:  # mitmproxy takes the first that is suitable
            self.connections[each] = self.connections.pop(each)
        yield from super().get_connection(event, reuse=reuse and len(full) < len(suitable))

    def _forget_ended(self) -> None:
        ended = [each for each in self.connections if _has_ended(each)]
        if ended:
            used = {id(stream.context.server) for stream in self.streams.values()}
            for each in ended:
                if id(each) not in used and each not in self.waiting_for_establishment:
                    del self.connections[each]

    def _is_idle(self, conn: connection.Connection) -> bool:
        """Whether a connection of HTTP/1.1 waits for its next request."""
        if not conn.connected or conn in self.waiting_for_establishment:
            return False
        client = self.connections[conn].context.layers[-1]
        return isinstance(client, KeptHttp1Client) and client.stream_id is None

    def _is_full(self, conn: connection.Connection) -> bool:
        waiting = self.waiting_for_establishment.get(conn)
        if waiting is not None:
            return len(waiting) >= self._limit
        client = self.connections[conn].context.layers[-1]
        if not isinstance(client, LastingHttp2Client):
            return False
        client.forget(self.streams.keys())
        if client.limit is not None:
            self._limit = client.limit
        return client.is_leaving or client.open_streams >= self._limit


def _has_ended(conn: connection.Connection) -> bool:
    """Whether the connection could not be opened, or was closed and mitmproxy has processed its end."""
    if not isinstance(conn, connection.Server) or conn.connected:
        return False
    return conn.timestamp_end is not None or (conn.error is not None and conn.timestamp_tcp_setup is None)


SHOWN_BY = "tests/addons/proxy/http/test_http_layer.py::test_a_server_that_comes_back_is_connected_to_again"
WHY = "mitmproxy never connects again to a server that once refused a connection of this client"
PATCHES = (
    Patch(next_layer, "HttpLayer", LastingHttpLayer, "(context, mode)", WHY, SHOWN_BY),
    Patch(layers, "HttpLayer", LastingHttpLayer, "(context, mode)", WHY, SHOWN_BY),
)
