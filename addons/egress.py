"""The only way out of the node for what mitmproxy relays: sends each request as `addons.link` says, and tells it what
it sees of the servers.

No other addon names a server. Mitmproxy opens no connection to a server that this addon did not name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mitmproxy import connection, http, tls
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.connections import Connections
from addons.link.health import RETRY_REFUSED
from addons.link.identities.kubelet import kubelet_at
from addons.link.link import Link
from addons.link.servers import ProxyHost, Server, ServerHost
from addons.offline.cached_response import is_too_large
from addons.pool.shared_links.lending import LentWays
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
        flow.request.scheme = server.scheme
        flow.request.host = ServerHost(*way, self.link.proxy(server))
        flow.request.port = server.port
        if ":" in server.host:
            # mitmproxy writes an address of IPv6 without the brackets, and a hub refuses such a head as malformed.
            flow.request.host_header = server.authority
        if context.failover is None:
            flow.request.stream = _counted(self.link.sent(server))
        else:
            context.failover = self._suspecting(context.failover)

    def request(self, flow: http.HTTPFlow) -> None:
        """Count a request's body that mitmproxy holds whole. The others are counted as they are streamed."""
        host = flow.request.host
        if isinstance(host, ServerHost) and not flow.request.stream:
            self.link.sent(host.server)(len(flow.request.raw_content or b""))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        host = flow.request.host
        if context is None or context.route is None or flow.response is None:
            return
        if not isinstance(host, ServerHost):
            return
        self.link.answered(host.way, context.caller.authorization, flow.response.status_code)
        if context.route.filtered_by:
            return
        received = _counted(self.link.received(host.server))
        is_held = not (_is_unframed(flow.request, flow.response) or is_too_large(flow.response.headers))
        if context.failover is not None and is_held:
            context.stream_too_large = received
            return
        context.failover = None
        flow.response.stream = received

    def response(self, flow: http.HTTPFlow) -> None:
        host = flow.request.host
        if isinstance(host, ServerHost) and flow.response is not None and not flow.response.stream:
            self.link.received(host.server)(len(flow.response.raw_content or b""))

    def server_connect(self, data: ServerConnectionHookData) -> None:
        address, refusal = data.server.address, self.link.drills.refusal
        if address is None or not isinstance(address[0], ServerHost):
            data.server.error = "no addon named this server"
        elif refusal is not None and address[0].server.is_in_cloud:
            data.server.error = str(refusal)

    def tls_start_server(self, data: tls.TlsData) -> None:
        assert isinstance(data.conn, connection.Server)
        host = data.conn.address[0] if data.conn.address else ""
        if not isinstance(host, ServerHost):
            raise RuntimeError("no addon named this server")
        if isinstance(host, ProxyHost):
            assert host.via is not None
            data.conn.alpn_offers, data.ssl_conn = [b"http/1.1"], self.link.proxy_tls(host.via)
            return
        # As mitmproxy does: offer the client's own HTTP version, so that no stream is translated.
        offers = [b"h2", b"http/1.1"] if data.context.client.alpn == b"h2" else [b"http/1.1"]
        data.conn.alpn_offers = offers
        data.ssl_conn = self.link.tls(host.server, host.lending, offers)

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
        host = flow.request.host
        if isinstance(host, ServerHost) and flow.error and "disconnect" not in flow.error.msg.lower():
            self.link.suspect(host.server)

    def _suspecting(self, failover: Callable[[http.HTTPFlow], None]) -> Callable[[http.HTTPFlow], None]:
        """A failover that first lets the server be probed, which failed under the request."""

        def run(flow: http.HTTPFlow) -> None:
            if isinstance(flow.request.host, ServerHost):
                self.link.suspect(flow.request.host.server)
            failover(flow)

        return run


def _server_of(data: ServerConnectionHookData) -> Server | None:
    """The server of a connection; None where it leads to the origin."""
    host = data.server.address[0] if data.server.address is not None else ""
    return host.server if isinstance(host, ServerHost) else None


def _is_unframed(request: http.Request, response: http.Response) -> bool:
    """Whether only the end of the connection ends the body (RFC 9112, section 6.3).

    A body that was cut then looks whole, so no client may be given it again later.
    """
    return response.http_version.startswith("HTTP/1") and expected_http_body_size(request, response) == -1


def _counted(count: Callable[[int], None]) -> Callable[[bytes], bytes]:
    """A stream function that counts."""

    def counted(chunk: bytes) -> bytes:
        count(len(chunk))
        return chunk

    return counted
