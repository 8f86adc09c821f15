"""The only way out of the node for what is relayed: says by which connections each request goes, and tells
`addons.link` what it sees of the servers.

No other addon names a server. mitmproxy itself opens connections for the ways that the hub lends, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mitmproxy import connection, http, tls
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.connections import Connections
from addons.link.health import RETRY_REFUSED
from addons.link.identities.kubelet import kubelet_at
from addons.link.link import Link, Relaying
from addons.link.servers import ProxyHost, Server, ServerHost
from addons.offline.cached_response import is_too_large
from addons.pool.shared_links.lending import LentWays
from addons.proxy.http.request_head import is_upgrade
from addons.proxy.lent_way import AskedWay
from addons.requests.caller import Caller, Lending
from addons.requests.hidden_credentials import lend
from addons.requests.request_context import context_of
from addons.requests.route_decision import RouteKind
from kube.errors import forbidden, internal, unavailable

SENT = frozenset({RouteKind.RELAY, RouteKind.CACHED_RELAY, RouteKind.KUBELET})
"""The kinds of requests that may go to a server."""


class Egress:
    """Sends relayed requests to a server."""

    name = "edgehub-egress"

    def __init__(self, connections: Connections, link: Link) -> None:
        self._connections = connections
        self.link = link
        self._lent: LentWays | None = None
        connections.count_own(lambda: len(link.connections) + len(link.upgrades))

    def lend(self, lent: LentWays) -> None:
        """Take who lends this node's way to the cloud."""
        self._lent = lent

    def lend_way(self, asked: AskedWay) -> None:
        """Lead a connection of the peer port to a server, or refuse it."""
        if self._lent is None:
            raise forbidden("this hub lends no way to the cloud")
        client, address = asked.client, asked.client.peername[0].partition("%")[0]
        server = self._lent.lend(client.id, asked.headers, address, asked.host, asked.port)
        asked.address = ServerHost(server, Lending.NONE, via=self.link.proxy(server)), server.port

    def client_disconnected(self, client: connection.Client) -> None:
        if self._lent is not None:
            self._lent.ended(client.id)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None:
            raise internal("the request was not routed")
        if context.answerer is not None:
            return  # the request goes nowhere
        if context.route.kind not in SENT:
            raise internal("nobody answers the request")
        port, caller = context.kubelet_port, context.caller
        server = kubelet_at(port) if port else self.link.choose()
        if server is None:
            raise unavailable("the cloud cannot be reached")
        if port:
            caller = Caller(Lending.HUB)
        elif caller.lending is Lending.HUB and self.link.cloud.refusal:
            raise unavailable(self.link.cloud.refusal, retry_after=RETRY_REFUSED)
        way = self.link.way(server, caller.lending, caller.authorization)
        context.server = str(server)
        self.link.asked(server)
        if bearer := self.link.bearer(way):
            lend(flow.request, bearer)
        # As people see it; the request goes where `upstream` leads.
        flow.request.scheme, flow.request.host, flow.request.port = server.scheme, server.host, server.port
        context.upstream = Relaying(
            *(self.link, way, is_upgrade(flow.request)), partial(self._connections.has_room, flow.client_conn)
        )
        if context.failover is None:
            flow.request.stream = _counted(self.link.sent(server))
        else:
            context.failover = self._suspecting(context.failover)

    def request(self, flow: http.HTTPFlow) -> None:
        """Count a request's body that mitmproxy holds whole. The others are counted as they are streamed."""
        server = _server_to(flow)
        if server is not None and not flow.request.stream:
            self.link.sent(server)(len(flow.request.raw_content or b""))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None or flow.response is None:
            return
        if not isinstance(context.upstream, Relaying):
            return
        way = context.upstream.way
        self.link.answered(way, context.caller.authorization, flow.response.status_code)
        if context.route.filtered_by:
            return
        received = _counted(self.link.received(way.server))
        is_held = not (context.is_unframed or is_too_large(flow.response.headers))
        if context.failover is not None and is_held:
            context.stream_too_large = received
            return
        context.failover = None
        flow.response.stream = received

    def response(self, flow: http.HTTPFlow) -> None:
        server = _server_to(flow)
        if server is not None and flow.response is not None and not flow.response.stream:
            self.link.received(server)(len(flow.response.raw_content or b""))

    def server_connect(self, data: ServerConnectionHookData) -> None:
        address, refusal = data.server.address, self.link.drills.refusal
        if address is None or not isinstance(address[0], ServerHost):
            data.server.error = "no addon named this server"
        elif refusal is not None and address[0].server.is_in_cloud:
            data.server.error = str(refusal)

    def tls_start_server(self, data: tls.TlsData) -> None:
        assert isinstance(data.conn, connection.Server)
        host = data.conn.address[0] if data.conn.address else ""
        if not isinstance(host, ProxyHost) or host.via is None:
            raise RuntimeError("nothing but a proxy is spoken to here")
        data.conn.alpn_offers, data.ssl_conn = [b"http/1.1"], self.link.proxy_tls(host.via)

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        if (server := _server_of(data)) is not None:
            self.link.connect_failed(server, str(data.server.error))

    def server_connected(self, data: ServerConnectionHookData) -> None:
        if (server := _server_of(data)) is None:
            return
        if self.link.drills.are_allowed:
            self._connections.pace(data.client, data.server, self.link.drills.pace)
        if self._lent is not None and self._lent.has(data.client.id):
            for conn, direction in ((data.client, "up"), (data.server, "down")):
                self._connections.pace(data.client, conn, partial(self._lent.pace, data.client.id, direction))
        if not isinstance(data.server.address[0] if data.server.address else "", ProxyHost):
            self.link.heard(server)
        if (health := self.link.health(server)) is not None:
            health.connections += 1

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        if (server := _server_of(data)) is not None and (health := self.link.health(server)) is not None:
            health.connections -= 1

    def error(self, flow: http.HTTPFlow) -> None:
        """A handshake failed or a connection broke under a request: the server may be gone."""
        server = _server_to(flow)
        if server is not None and flow.error and "disconnect" not in flow.error.msg.lower():
            self.link.suspect(server)

    def _suspecting(self, failover: Callable[[http.HTTPFlow], None]) -> Callable[[http.HTTPFlow], None]:
        """A failover that first lets the server be probed, which failed under the request."""

        def run(flow: http.HTTPFlow) -> None:
            if (server := _server_to(flow)) is not None:
                self.link.suspect(server)
            failover(flow)

        return run


def _server_of(data: ServerConnectionHookData) -> Server | None:
    """The server of a connection that another hub is lent."""
    host = data.server.address[0] if data.server.address is not None else ""
    return host.server if isinstance(host, ServerHost) else None


def _server_to(flow: http.HTTPFlow) -> Server | None:
    """The server to which a flow's request goes; None where it goes nowhere."""
    context = context_of(flow)
    upstream = context.upstream if context is not None else None
    return upstream.server if isinstance(upstream, Relaying) else None


def _counted(count: Callable[[int], None]) -> Callable[[bytes], bytes]:
    """A stream function that counts."""

    def counted(chunk: bytes) -> bytes:
        count(len(chunk))
        return chunk

    return counted
