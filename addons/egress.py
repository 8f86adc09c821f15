"""The only way out: chooses a server, adds the identity that a caller may use, and keeps watch over the servers.

No other addon names a server, and a connection that this one did not name is refused before it is made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from mitmproxy import connection, http, tls
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.connections import Connections
from addons.offline.cached_responses import is_too_large
from addons.proxy.fail_closed import guarded, guarded_connection
from addons.requests.caller import Lending, Listener
from addons.requests.headers import ANSWERED_HEADER, SERVER_HEADER
from addons.requests.request_context import context_of
from addons.requests.route_decision import RouteKind
from addons.settings import Server
from addons.telemetry import metrics
from addons.upstream.health import Cloud, ServerHealth
from addons.upstream.tls import UpstreamTls
from kube.concurrency.pulse import Pulse
from kube.errors import internal, unavailable
from kube.http.client import Client, RawResponse, Unreachable
from kube.http.kubeconfig import Credentials

PROBE_INTERVAL = 3.8
"""Seconds between probes of a server that is up; with the timeout this notices a black hole within 6 s.

Oftener would cost more than 150 bytes a second over HTTP/1.1, where a probe is some 550 bytes, most of them headers;
over HTTP/2 it is a third of that.
"""
PROBE_TIMEOUT = 1.9
"""Seconds a server has to answer a probe, or to send anything else: twice the slowest satellite link's round trip."""
RECOVERY_INTERVAL = 1.0
"""Seconds between probes of a server that is down, or may be."""
PROBE_PATH = "/livez"
"""Small, answered without etcd, and open to every client by Kubernetes' default roles."""

SENT = frozenset({RouteKind.RELAY, RouteKind.CACHED_RELAY})
"""What may go to the cloud."""

logger = logging.getLogger(__name__)


class ServerHost(str):
    """A server's host as mitmproxy's connection address, which differs by whose identity the connection carries.

    mitmproxy uses a connection again for the same address. A request with a caller's own token must never travel
    on one that was opened with the hub's certificate: kube-apiserver would take it for the hub.
    """

    __slots__ = ("lending", "server")

    def __new__(cls, server: Server, lending: Lending) -> ServerHost:
        made = super().__new__(cls, server.host)
        made.server, made.lending = server, lending
        return made

    server: Server
    lending: Lending

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ServerHost)
            and str.__eq__(self, other)
            and (self.server, self.lending) == (other.server, other.lending)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.server, self.lending))


class Egress:
    """Sends relays to a server. Owns the probes."""

    name = "edgehub-egress"

    def __init__(self, connections: Connections, clock: Callable[[], float] = time.monotonic) -> None:
        self._connections = connections
        self._clock = clock
        self.cloud = Cloud([], "priority")
        self.changed = Pulse()
        """Beats when a server came up or went down."""
        self._credentials: Credentials | None = None
        self._tls: UpstreamTls | None = None
        self._probes: list[asyncio.Task[None]] = []
        self._origin: tuple[str, int] | None = None

    def start(self, cloud: Cloud, credentials: Credentials, origin: tuple[str, int], client: Client) -> None:
        """Take the servers, what to show them, and the one other address that flows may go to; begin to probe.

        `client` is one of the hub's own listener.
        """
        self.cloud, self._credentials, self._origin = cloud, credentials, origin
        self._tls = UpstreamTls(credentials)
        for health in cloud.servers:
            metrics.SERVER_UP.labels(str(health.server)).set(1)
            name = f"probe of {health.server}"
            self._probes.append(asyncio.create_task(self._probe(health, client), name=name))

    def done(self) -> None:
        for probe in self._probes:
            probe.cancel()
        self._probes.clear()

    @guarded
    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None:
            raise internal("the request was not routed")
        if context.ticket:
            return  # to the origin
        if context.route.kind not in SENT:
            raise internal("the request was not redirected")
        server = self._choose(context.server)
        lending = context.caller.lending
        context.server = str(server)
        if lending is Lending.HUB and self._credentials is not None and self._credentials.bearer:
            flow.request.headers["Authorization"] = self._credentials.bearer
        flow.request.scheme = server.scheme
        flow.request.host = ServerHost(server, lending)
        flow.request.port = server.port
        if context.rescue is None:
            flow.request.stream = _counted("up", server)

    @guarded
    def request(self, flow: http.HTTPFlow) -> None:
        """What may be sent twice was not streamed, and is counted here."""
        host = flow.request.host
        if isinstance(host, ServerHost) and not flow.request.stream:
            metrics.UPSTREAM_BYTES.labels("up", str(host.server)).inc(len(flow.request.raw_content or b""))

    @guarded
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        host = flow.request.host
        if context is None or context.route is None or flow.response is None:
            return
        if not isinstance(host, ServerHost):
            return
        if context.listener is Listener.INTERNAL:
            flow.response.headers[ANSWERED_HEADER] = str(host)
        if context.route.filters or (context.rescue is not None and not is_too_large(flow.response.headers)):
            return
        context.rescue = None
        flow.response.stream = self._counted_down(host.server)

    @guarded
    def response(self, flow: http.HTTPFlow) -> None:
        host = flow.request.host
        if isinstance(host, ServerHost) and flow.response is not None and not flow.response.stream:
            metrics.UPSTREAM_BYTES.labels("down", str(host.server)).inc(len(flow.response.raw_content or b""))

    @guarded_connection
    def server_connect(self, data: ServerConnectionHookData) -> None:
        address = data.server.address
        if address is None or not (isinstance(address[0], ServerHost) or address == self._origin):
            data.server.error = "no addon named this server"

    @guarded_connection
    def tls_start_server(self, data: tls.TlsData) -> None:
        assert isinstance(data.conn, connection.Server)
        host = data.conn.address[0] if data.conn.address else ""
        if not isinstance(host, ServerHost) or self._tls is None:
            raise RuntimeError("no addon named this server")
        # As mitmproxy: the cloud is spoken to in the client's HTTP version, so that streams are not translated.
        offers = [b"h2", b"http/1.1"] if data.context.client.alpn == b"h2" else [b"http/1.1"]
        data.conn.alpn_offers = offers
        data.ssl_conn = self._tls.connection(
            self._tls.server_name or str(host), lend_certificate=host.lending is Lending.HUB, alpn=offers
        )

    @guarded_connection
    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        address = data.server.address
        # Only what the kernel says of the server counts: a client that left cancels its connection as well.
        refused = (data.server.error or "").startswith(("[Errno", "Multiple exceptions"))
        if refused and address is not None and isinstance(address[0], ServerHost):
            health = self.cloud.named(str(address[0].server))
            if health is not None:
                self._failed(health, str(data.server.error))

    def _choose(self, name: str) -> Server:
        if name:
            health = self.cloud.named(name)
            if health is None:
                raise internal(f"there is no server {name}")
            return health.server
        server = self.cloud.choose()
        if server is None:
            raise unavailable("the cloud cannot be reached")
        return server

    async def _probe(self, health: ServerHealth, client: Client) -> None:
        client = client.with_headers({SERVER_HEADER: str(health.server)})
        while True:
            began = self._clock()
            try:
                answer = await client.relay("GET", PROBE_PATH, headers=(), body=b"", timeout=PROBE_TIMEOUT)
                self._answered(health, answer)
            except Unreachable as error:
                # Behind a full link the probe may wait for its turn while the server speaks to others.
                if health.heard <= began or not health.usable:
                    self._failed(health, str(error))
            except Exception as error:
                # Without its probe a server would stay down, or up, for good.
                logger.exception("the probe of %s failed", health.server)
                self._failed(health, str(error))
            settled = health.usable and not health.doubtful
            await asyncio.sleep(PROBE_INTERVAL if settled else RECOVERY_INTERVAL)

    def _answered(self, health: ServerHealth, answer: RawResponse) -> None:
        if ANSWERED_HEADER not in answer.headers:
            self._failed(health, f"no answer ({answer.status})")
        elif answer.status < 500:
            self._succeeded(health)
        elif health.erred(f"it answers {answer.status}"):
            self._went_down(health)

    def _succeeded(self, health: ServerHealth) -> None:
        if health.succeeded():
            logger.info("%s is up again", health.server)
            metrics.SERVER_UP.labels(str(health.server)).set(1)
            self.changed.notify()

    def _failed(self, health: ServerHealth, reason: str) -> None:
        if health.failed(reason):
            self._went_down(health)

    def _went_down(self, health: ServerHealth) -> None:
        cut = self._connections.cut(lambda conn: _leads_to(conn, health.server))
        logger.warning("%s is down (%s); %d connections cut", health.server, health.reason, cut)
        metrics.SERVER_UP.labels(str(health.server)).set(0)
        metrics.UPSTREAM_CUT.labels(str(health.server)).inc(cut)
        self.changed.notify()

    def _counted_down(self, server: Server) -> Callable[[bytes], bytes]:
        """Counts what a server sends, which also shows that it is there."""
        count, health = _counted("down", server), self.cloud.named(str(server))

        def hear(chunk: bytes) -> bytes:
            if health is not None:
                health.heard = self._clock()
            return count(chunk)

        return hear


def _leads_to(conn: connection.Server, server: Server) -> bool:
    host = conn.address[0] if conn.address else ""
    return isinstance(host, ServerHost) and host.server == server


def _counted(direction: str, server: Server) -> Callable[[bytes], bytes]:
    counter = metrics.UPSTREAM_BYTES.labels(direction, str(server))

    def count(chunk: bytes) -> bytes:
        counter.inc(len(chunk))
        return chunk

    return count
