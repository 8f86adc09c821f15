"""The only exit from the node for relayed requests: selects the connection of each, and reports to `addons.link` how
the servers answer.

No other addon names a server. mitmproxy itself opens no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from mitmproxy import connection, http
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from addons.link.health import RETRY_REFUSED
from addons.link.identities.kubelet import kubelet_at
from addons.link.link import RelayConnections, UpstreamManager
from addons.link.servers import Server
from addons.offline.cached_response import is_too_large
from addons.offline.offline_request import has_options
from addons.pool.shared_links.tunnel_server import TunnelServer
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.hidden_credentials import lend
from addons.requests.request_context import RelayUpstream, RequestContext, context_of
from addons.server.limits.open_connections import OpenConnections
from addons.server.limits.request_head import is_upgrade
from addons.server.messages import show_server
from addons.server.peer.lent_tunnel import LentLink, TunnelRequest
from kube.errors import forbidden, internal, unavailable


class Egress:
    """Sends relayed requests to a server."""

    name = "edgehub-egress"

    def __init__(self, connections: OpenConnections) -> None:
        self._connections = connections
        self._started: UpstreamManager | None = None
        self._lent: TunnelServer | None = None
        connections.count_own(self._opened)

    def start(self, link: UpstreamManager, lent: TunnelServer | None = None) -> None:
        """Begin to send requests by this link, and to lend it to other hubs."""
        self._started, self._lent = link, lent

    @property
    def link(self) -> UpstreamManager:
        """The link; StatusError before the start."""
        if self._started is None:
            raise unavailable("the hub is starting", retry_after=1)
        return self._started

    def open_tunnel(self, request: TunnelRequest) -> None:
        """Open a tunnel from a connection of the peer port to a server, or refuse it."""
        if self._lent is None:
            raise forbidden("tunnels to the cloud not allowed")
        address = request.address.partition("%")[0]
        server = self._lent.lend(request.client_id, request.headers, address, request.host, request.port)
        opened = partial(self._lent.opened, request.client_id)
        request.lent = LentLink(
            partial(self._open_lent, server, opened), partial(self._lent.pace, request.client_id)
        )

    async def _open_lent(
        self, server: Server, opened: Callable[[], None]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self._connections.has_capacity(Listener.PEER):
            raise ConnectionError("the hub has too many connections")
        streams = await self.link.lend(server)
        opened()
        return streams

    def client_disconnected(self, client: connection.Client) -> None:
        if self._lent is not None:
            self._lent.ended(client.id)

    def server_connect(self, data: ServerConnectionHookData) -> None:
        data.server.error = "mitmproxy may not connect to servers: the hub does"

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None:
            raise internal("the request was not routed")
        if context.answerer is not None:
            return  # the request goes nowhere
        self._lead(flow, context)
        is_held = context.failover is not None or (context.is_write and has_options(context.info))
        if not is_held and (relaying := _relaying(context)) is not None:
            flow.request.stream = _counted(self.link.sent(relaying.server))

    def relay(self, flow: http.HTTPFlow) -> None:
        """Send a completely received request to a server that the hub was to answer itself; StatusError if it is
        refused."""
        if (context := context_of(flow)) is not None:
            self._lead(flow, context)
            self.request(flow)

    def _lead(self, flow: http.HTTPFlow, context: RequestContext) -> None:
        """Set the upstream connections of a request."""
        port, caller = context.kubelet_port, context.caller
        server = kubelet_at(port) if port else self.link.choose()
        if server is None:
            raise unavailable("the cloud cannot be reached")
        if port:
            caller = Caller(CredentialSource.HUB)
        elif caller.credential_source is CredentialSource.HUB and self.link.cloud.refusal:
            raise unavailable(self.link.cloud.refusal, retry_after=RETRY_REFUSED)
        key = self.link.pool_key(server, caller.credential_source, caller.authorization)
        context.server = str(server)
        self.link.note_request(server)
        if bearer := self.link.bearer(key):
            lend(flow.request, bearer)
        show_server(flow.request, server.scheme, server.host, server.port)
        has_capacity = partial(self._connections.has_capacity, context.listener)
        relaying = RelayConnections(self.link, key, is_upgrade(flow.request.headers.fields), has_capacity)
        context.upstream = RelayUpstream(context.route, relaying)
        if context.failover is not None:
            context.failover = self._suspecting(context.failover)

    def request(self, flow: http.HTTPFlow) -> None:
        """Count the bytes of a request body that mitmproxy buffers completely. Streamed bodies are counted piece by
        piece."""
        server = _server_to(flow)
        if server is not None and not flow.request.stream and (body := flow.request.raw_content):
            self.link.sent(server)(len(body))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None or context.route is None or flow.response is None:
            return
        if (relaying := _relaying(context)) is None:
            return
        key = relaying.key
        self.link.answered(key, context.caller.authorization, flow.response.status_code)
        if context.route.filtered_by:
            return
        received = _counted(self.link.received(key.server))
        is_held = not (context.is_unframed or is_too_large(flow.response.headers))
        if (context.failover is not None or context.is_write) and is_held:
            context.stream_too_large = received
            return
        context.failover = None
        flow.response.stream = received

    def response(self, flow: http.HTTPFlow) -> None:
        server = _server_to(flow)
        if server is not None and flow.response is not None and not flow.response.stream:
            self.link.received(server)(len(flow.response.raw_content or b""))

    def _opened(self) -> int:
        if self._started is None:
            return 0
        lent = sum(self._lent.tunnels().values()) if self._lent is not None else 0
        return len(self.link.connections) + len(self.link.upgrades) + lent

    def error(self, flow: http.HTTPFlow) -> None:
        """Handle a failed handshake or a connection that broke during a request: the server may be down."""
        server = _server_to(flow)
        if server is not None and flow.error and "disconnect" not in flow.error.msg.lower():
            self.link.suspect(server)

    def _suspecting(self, failover: Callable[[http.HTTPFlow], None]) -> Callable[[http.HTTPFlow], None]:
        """Return a failover that first probes the server that failed during the request."""

        def run(flow: http.HTTPFlow) -> None:
            if (server := _server_to(flow)) is not None:
                self.link.suspect(server)
            failover(flow)

        return run


def _relaying(context: RequestContext) -> RelayConnections | None:
    """Return the connections for a request; None if it is not relayed."""
    connections = context.upstream.connections if context.upstream is not None else None
    return connections if isinstance(connections, RelayConnections) else None


def _server_to(flow: http.HTTPFlow) -> Server | None:
    """Return the server of a flow's request; None if it is not relayed."""
    context = context_of(flow)
    relaying = _relaying(context) if context is not None else None
    return relaying.server if relaying is not None else None


def _counted(count: Callable[[int], None]) -> Callable[[bytes], bytes]:
    """Return a stream function that counts bytes."""

    def counted(chunk: bytes) -> bytes:
        count(len(chunk))
        return chunk

    return counted
