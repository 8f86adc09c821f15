"""The only way out of the node: chooses a server for each relayed request, and adds the identity that it travels with.

No other addon names a server. Mitmproxy opens no connection to a server that this addon did not name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from mitmproxy import connection, http, tls
from mitmproxy.net.http.http1 import expected_http_body_size
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.connections import Connections
from addons.offline.cached_response import is_too_large
from addons.pool.peer_tls import PeerTls
from addons.requests.caller import Caller, Lending, Listener
from addons.requests.headers import ANSWERED_HEADER, UNFRAMED_HEADER
from addons.requests.hidden_credentials import lend
from addons.requests.request_context import context_of
from addons.requests.route_decision import RouteKind
from addons.telemetry import metrics
from addons.upstream.drills import Drills
from addons.upstream.health import RETRY_REFUSED, Cloud, ServerHealth
from addons.upstream.probes import Probes
from addons.upstream.servers import Server, ServerHost
from addons.upstream.tls import UpstreamTls
from addons.upstream.token_lanes import NO_LANE, TokenLanes
from kube.concurrency.pulse import Pulse
from kube.errors import internal, unavailable
from kube.http.client import Client
from kube.http.kubeconfig import Credentials

SENT = frozenset({RouteKind.RELAY, RouteKind.CACHED_RELAY})
"""The kinds of requests that may go to the cloud."""


class Egress:
    """Sends relayed requests to a server, and tells the probes what it sees of the servers."""

    name = "edgehub-egress"

    def __init__(self, connections: Connections, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cloud = Cloud([], "priority")
        self.changed = Pulse()
        """Notified when a server comes up or goes down."""
        self._credentials: Credentials | None = None
        self._tls: UpstreamTls | None = None
        self._connections = connections
        self._probes = Probes(self.cut, self.changed, clock)
        self.drills = Drills(self._drill_changed, clock)
        self._origin: tuple[str, int] | None = None
        self._lanes = TokenLanes()
        self._peer_tls: PeerTls | None = None
        self._peers: Callable[[], Mapping[str, ServerHealth]] = dict

    def start_peers(self, peer_tls: PeerTls, peers: Callable[[], Mapping[str, ServerHealth]]) -> None:
        """Let the hub's own requests go to the hubs of other nodes: those that `peers` names now, by their URLs."""
        self._peer_tls, self._peers = peer_tls, peers

    def cut(self, server: Server) -> int:
        """Close the connections to a server; how many there were."""
        return self._connections.cut(lambda conn: _leads_to(conn, server))

    def start(self, cloud: Cloud, credentials: Credentials, origin: tuple[str, int], client: Client) -> None:
        """Begin to send requests to the servers of `cloud`, and to probe them.

        `origin` is the one other address that flows may go to. `client` sends to the hub's own listener.
        """
        self.cloud, self._credentials, self._origin = cloud, credentials, origin
        self._tls = UpstreamTls(credentials)
        metrics.watch_expiry("client", self._tls.expiry)
        self._probes.start(cloud, client)

    def done(self) -> None:
        self._probes.close()
        self.drills.close()

    def _drill_changed(self) -> None:
        """Let the hub learn of a drill as of any outage: connections break, and new ones are refused."""
        if self.drills.is_offline:
            for health in (*self.cloud.servers, *self._peers().values()):
                if health.server.is_in_cloud:
                    self.cut(health.server)
                    self._probes.suspect(health)

    async def confirm(self) -> bool:
        """Whether a server is up, by a probe that is sent now."""
        return await self._probes.confirm()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None:
            raise internal("the request was not routed")
        if context.ticket:
            return  # the request goes to the origin
        if context.route.kind not in SENT:
            raise internal("the request was not redirected")
        server = self._choose(context.server)
        lending = context.caller.lending
        if lending is Lending.HUB and context.listener is not Listener.INTERNAL and self.cloud.refusal:
            raise unavailable(self.cloud.refusal, retry_after=RETRY_REFUSED)
        context.server = str(server)
        # Another hub is shown this node's certificate, and no token: see `tls_start_server`.
        if (
            lending is Lending.HUB
            and not server.node
            and self._credentials is not None
            and self._credentials.bearer
        ):
            lend(flow.request, self._credentials.bearer)
        flow.request.scheme = server.scheme
        flow.request.host = ServerHost(server, lending, self._lane(context.caller))
        flow.request.port = server.port
        if ":" in server.host:
            # mitmproxy writes an address of IPv6 without the brackets, and a hub refuses such a head as malformed.
            flow.request.host_header = str(server).removeprefix(f"{server.scheme}://")
        if context.failover is None:
            flow.request.stream = _counted("sent" if server.node else "up", server)
        else:
            context.failover = self._suspecting(context.failover)

    def request(self, flow: http.HTTPFlow) -> None:
        """Count a request's body that mitmproxy holds whole. The others are counted as they are streamed."""
        host = flow.request.host
        if isinstance(host, ServerHost) and not flow.request.stream:
            metrics.UPSTREAM_BYTES.labels("up", str(host.server)).inc(len(flow.request.raw_content or b""))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        host = flow.request.host
        if context is None or context.route is None or flow.response is None:
            return
        if not isinstance(host, ServerHost):
            return
        if host.lending is Lending.OWN:
            self._lanes.answered(context.caller.authorization, flow.response.status_code)
        elif flow.response.status_code == 401 and (health := self._health(host)) is not None:
            self._probes.suspect(health)  # the node's identity may have ended
        unframed = _is_unframed(flow.request, flow.response)
        if context.listener is Listener.INTERNAL:
            flow.response.headers[ANSWERED_HEADER] = str(host)
            if unframed:
                flow.response.headers[UNFRAMED_HEADER] = "1"
        if context.route.filtered_by:
            return
        if context.failover is not None and not (unframed or is_too_large(flow.response.headers)):
            context.stream_too_large = self._counted_down(host.server)
            return
        context.failover = None
        flow.response.stream = self._counted_down(host.server)

    def response(self, flow: http.HTTPFlow) -> None:
        host = flow.request.host
        if isinstance(host, ServerHost) and flow.response is not None and not flow.response.stream:
            metrics.UPSTREAM_BYTES.labels("down", str(host.server)).inc(len(flow.response.raw_content or b""))

    def server_connect(self, data: ServerConnectionHookData) -> None:
        address = data.server.address
        if address is None or not (isinstance(address[0], ServerHost) or address == self._origin):
            data.server.error = "no addon named this server"
        elif isinstance(address[0], ServerHost) and address[0].server.is_in_cloud and self.drills.is_offline:
            data.server.error = self.drills.refusal

    def tls_start_server(self, data: tls.TlsData) -> None:
        assert isinstance(data.conn, connection.Server)
        host = data.conn.address[0] if data.conn.address else ""
        if not isinstance(host, ServerHost) or self._tls is None:
            raise RuntimeError("no addon named this server")
        # As mitmproxy does: offer the client's own HTTP version, so that no stream is translated.
        offers = [b"h2", b"http/1.1"] if data.context.client.alpn == b"h2" else [b"http/1.1"]
        data.conn.alpn_offers = offers
        if host.server.node:
            if self._peer_tls is None:
                raise RuntimeError("no addon named this server")
            data.ssl_conn = self._peer_tls.connection(host.server, offers)
            return
        data.ssl_conn = self._tls.connection(
            self._tls.server_name or str(host), lend_certificate=host.lending is Lending.HUB, alpn=offers
        )

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        address = data.server.address
        if address is not None and (health := self._health(address[0])) is not None:
            self._probes.connect_failed(health, str(data.server.error))

    def server_connected(self, data: ServerConnectionHookData) -> None:
        host = data.server.address[0] if data.server.address is not None else ""
        if self.drills.are_allowed and isinstance(host, ServerHost) and host.server.is_in_cloud:
            self._connections.pace(data, self.drills.pace)
        if data.server.address is not None and (health := self._health(data.server.address[0])) is not None:
            health.connections += 1

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        if data.server.address is not None and (health := self._health(data.server.address[0])) is not None:
            health.connections -= 1

    def error(self, flow: http.HTTPFlow) -> None:
        """A handshake failed or a connection broke under a request: the server may be gone."""
        health = self._health(flow.request.host)
        if health is not None and flow.error is not None and "disconnect" not in flow.error.msg.lower():
            self._probes.suspect(health)

    def _suspecting(self, failover: Callable[[http.HTTPFlow], None]) -> Callable[[http.HTTPFlow], None]:
        """A failover that first lets the server be probed, which failed under the request."""

        def run(flow: http.HTTPFlow) -> None:
            health = self._health(flow.request.host)
            if health is not None:
                self._probes.suspect(health)
            failover(flow)

        return run

    def _health(self, host: str) -> ServerHealth | None:
        """The health of a server of the cloud; None for all else. `addons.pool` sees to the leaders."""
        return (
            self.cloud.named(str(host.server))
            if isinstance(host, ServerHost) and not host.server.node
            else None
        )

    def _choose(self, name: str) -> Server:
        if name:
            health = self.cloud.named(name) or self._peers().get(name)
            if health is None:
                raise internal(f"there is no server {name}")
            return health.server
        server = self.cloud.choose()
        if server is None:
            raise unavailable("the cloud cannot be reached")
        return server

    def _lane(self, caller: Caller) -> str:
        """Which connections a request may share: see `addons.upstream.token_lanes` and `UpstreamTls.lane`."""
        if caller.lending is Lending.OWN:
            return self._lanes.lane(caller.authorization)
        if caller.lending is Lending.HUB and self._tls is not None:
            return self._tls.lane
        return NO_LANE

    def _counted_down(self, server: Server) -> Callable[[bytes], bytes]:
        """A stream function that counts what a server sends, and notes that the server is alive."""
        count = _counted("received" if server.node else "down", server)
        health = self._peers().get(str(server)) if server.node else self.cloud.named(str(server))

        def hear(chunk: bytes) -> bytes:
            if health is not None:
                health.heard = self._clock()
            return count(chunk)

        return hear


def _leads_to(conn: connection.Server, server: Server) -> bool:
    host = conn.address[0] if conn.address else ""
    return isinstance(host, ServerHost) and host.server == server


def _is_unframed(request: http.Request, response: http.Response) -> bool:
    """Whether only the end of the connection ends the body (RFC 9112, section 6.3).

    A body that was cut then looks whole, so no client may be given it again later.
    """
    return response.http_version.startswith("HTTP/1") and expected_http_body_size(request, response) == -1


def _counted(direction: str, server: Server) -> Callable[[bytes], bytes]:
    """A stream function that counts. `direction` is up or down to and from the cloud, sent or received for a hub."""
    if server.node:
        counter = metrics.PEER_BYTES.labels(direction, metrics.peer_label(server.node))
    else:
        counter = metrics.UPSTREAM_BYTES.labels(direction, str(server))

    def count(chunk: bytes) -> bytes:
        counter.inc(len(chunk))
        return chunk

    return count
