"""mitmproxy's HTTP layer for clients that stay connected for months, as every client-go that speaks HTTP/2 does.

mitmproxy remembers each upstream connection of a client connection for good: one that failed would fail every later
request, ended ones would pile up, and a request past a server's limit of streams would wait for one to end. To a server
of HTTP/1.1 it would open a connection for each request of HTTP/2.
"""

from __future__ import annotations

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

from addons.proxy.http_connections import KeptHttp1Client, LastingHttp2Client

MAX_STREAMS = 100
"""Streams on a connection as long as no server has said how many it takes: kube-apiserver's default, as Go's."""


class LastingHttpLayer(HttpLayer):
    """Forgets upstream connections that ended, and opens another one where all there are have no room."""

    def __init__(self, context: Context, mode: HTTPMode) -> None:
        super().__init__(context, mode)
        self._limit = MAX_STREAMS
        """What the last server said, for connections that are not that far."""

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
        """It speaks HTTP/1.1, and its last answer is whole."""
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
    """No more will be heard of it: it could not be opened, or mitmproxy has told of its end."""
    if not isinstance(conn, connection.Server) or conn.connected:
        return False
    return conn.timestamp_end is not None or (conn.error is not None and conn.timestamp_tcp_setup is None)


def install() -> None:
    """Let mitmproxy make layers of this kind."""
    vars(next_layer)["HttpLayer"] = LastingHttpLayer
    vars(layers)["HttpLayer"] = LastingHttpLayer
