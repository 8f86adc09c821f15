"""Chooses server and identity for each request that leaves the node, and derives the servers' health from the answers.

Egress uses it for relayed requests, and `addons.link.own_requests` for the hub's own. `UpstreamManager.connect` opens
the connections of both.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from OpenSSL import SSL

from addons.link.drills import Drills
from addons.link.failback import UplinkSelector, run_selector
from addons.link.health import Cloud, ServerHealth
from addons.link.identities.kubelet import KUBELET, KubeletAccess
from addons.link.probes import Probes
from addons.link.servers import NO_PARTITION, Lender, PoolKey, PoolPartitions, Server
from addons.link.tls import UpstreamTls, connection_by_system_cas
from addons.link.uplinks.uplink import Uplink
from addons.link.upstream_transport import UpstreamTransport, connect
from addons.requests.caller import CredentialSource
from addons.telemetry import metrics
from addons.telemetry.background import background
from kube.http.client import Client
from kube.http.kubeconfig import Credentials
from kube.http.proxies import Proxy, proxy_for
from kube.http.transport.connection_pool import Connection, ConnectionPool
from kube.http.transport.http1_connection import Http1Connection
from kube.http.transport.http2_connection import Http2Connection

ALPN_PROTOCOLS = [b"h2", b"http/1.1"]
"""The ALPN protocols that the hub speaks."""


def _in_no_pool(_server: Server, _offers: list[bytes]) -> SSL.Connection:
    raise RuntimeError("the hub is in no pool")


class PoolLink(NamedTuple):
    """The pool's part of the link."""

    tls: Callable[[Server, list[bytes]], SSL.Connection] = _in_no_pool
    """Returns TLS to another node's hub, offering the given protocols: `addons.pool.peer_tls`."""
    peers: Callable[[], Mapping[str, ServerHealth]] = dict
    """Returns the other hubs to which this hub may send its own requests, by URL."""
    carried: Callable[[int], None] = lambda _size: None
    """Called with the number of body bytes in each transfer between this node and the cloud."""
    cut_lent: Callable[[Server], int] = lambda _server: 0
    """Closes the tunnels to a server that this hub lends to other hubs; returns their number."""


class UpstreamManager:
    """The servers that the hub may send to, and the connections to them.

    Two parts are set after construction, because they send requests through it: the probes' client (`start_probes`),
    and the pool (`pool`), which asks the cloud whether this node is in one.
    """

    def __init__(
        self,
        cloud: Cloud,
        credentials: Credentials | None,
        kubelet: KubeletAccess | None = None,
        drills: Drills | None = None,
        refused: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ValueError if the environment names an unusable proxy.

        Without `credentials` it calls only ports of this node; without `kubelet` it cannot call the node's own kubelet.
        `refused` is called when a server of the cloud answers 401 to the node's identity. `clock` returns monotonic
        seconds.
        """
        self.cloud = cloud
        self._refused = refused
        self.connections: ConnectionPool[PoolKey] = ConnectionPool(self.connect)
        """The connections of relayed requests and of the hub's own."""
        self.upgrades: ConnectionPool[PoolKey] = ConnectionPool(partial(self.connect, offers=[b"http/1.1"]))
        """The connections of requests that upgrade to another protocol, one connection for each."""
        self.drills = drills or Drills(clock)
        self.drills.on_change.append(self._drill_changed)
        self.clock = clock
        self.relayed_at = 0.0
        """Monotonic time at which a server of the cloud last sent body bytes, except for the hub's own watches."""
        self.pool = PoolLink()
        self._probes = Probes(cloud, self.cut, self._ping, clock)
        self.probed = self._probes.probed
        """Notified after each probe."""
        self._partitions = PoolPartitions()
        self._credentials, self._kubelet = credentials, kubelet
        self._tls = UpstreamTls(credentials) if credentials is not None else None
        if self._tls is not None:
            metrics.watch_expiry("client", self._tls.expiry)
        self._proxies: dict[Server, Proxy | None] = {}
        """The proxy of each server of the cloud, cached: the process environment does not change."""
        self._choosing: asyncio.Task[None] | None = None
        self._proxies |= {server.server: self.proxy(server.server) for server in cloud.servers}

    def start_probes(self, client: Client) -> None:
        """Probe the servers with this client, and choose among the uplinks by the results."""
        self._probes.start(client)
        if len(self.cloud.uplinks) > 1:
            step = UplinkSelector(self.cloud, self._leave).step
            choosing = run_selector(step, self.clock, self.cloud.changed, self.probed)
            self._choosing = background(choosing, "choice of the uplink")

    def borrow(self, paths: tuple[ServerHealth, ...]) -> None:
        """Replace the tunnels through other hubs by `paths`: probe them, and use them if they reach a server."""
        previous, self.cloud.borrowed = self.cloud.borrowed, paths
        for state in previous:
            if not any(state is path for path in paths):
                self._probes.end(state)
                self.cut(state.server)
                for own in self.cloud.servers:
                    own.down_since = max(own.down_since, state.down_since)  # reachable until then
        for server in paths:
            if not any(server is path for path in previous):
                self._probes.begin(server)
        self.cloud.changed.notify()

    def close(self) -> None:
        self._probes.close()
        if self._choosing is not None:
            self._choosing.cancel()
        self.drills.close()
        self.connections.close()
        self.upgrades.close()

    # -- which server, and with whose identity

    def choose(self, name: str = "") -> Server | None:
        """Return the server with this URL, or for "" a usable server of the cloud; None if there is none."""
        if not name:
            return self.cloud.choose()
        health = self.cloud.find(name) or self.pool.peers().get(name)
        return health.server if health is not None else None

    def pool_key(self, server: Server, credential_source: CredentialSource, authorization: str) -> PoolKey:
        """Return the key of the connections for a request. ValueError if another hub would see a caller's token."""
        if server.node and credential_source is not CredentialSource.HUB:
            raise ValueError(f"only the hub's own identity may be sent to {server}")
        if credential_source is CredentialSource.OWN:
            return PoolKey(server, credential_source, self._partitions.partition(authorization))
        return PoolKey(
            server,
            credential_source,
            self._tls.partition if credential_source is CredentialSource.HUB and self._tls else NO_PARTITION,
        )

    def bearer(self, key: PoolKey) -> str:
        """Return the Authorization that the hub adds to a request with this key; "" for none.

        Other hubs get a certificate instead.
        """
        if key.credential_source is not CredentialSource.HUB or key.server.node or self._credentials is None:
            return ""
        return self._credentials.user.bearer

    def tls(self, server: Server, credential_source: CredentialSource, offers: list[bytes]) -> SSL.Connection:
        """Return TLS to a server before its ClientHello, from `UpstreamTls`, `addons.pool.peer_tls` or `KubeletAccess`.

        RuntimeError if there are no credentials for it.
        """
        if server.node == KUBELET:
            if self._kubelet is None:
                raise RuntimeError("the hub has no certificate for kubelet")
            return self._kubelet.tls(offers)
        if server.node:
            return self.pool.tls(server, offers)
        if self._tls is None:
            raise RuntimeError("the hub has no credentials")
        name = self._tls.server_name or server.host
        return self._tls.connection(
            name, present_certificate=credential_source is CredentialSource.HUB, alpn=offers
        )

    def proxy(self, server: Server) -> Proxy | None:
        """Return the proxy through which a server is reached; None without one. Hubs of other nodes need none.

        A lender is treated as a proxy to the server.
        """
        if server.lender is not None:
            return server.lender
        if not server.is_in_cloud or self._credentials is None:
            return None
        if server not in self._proxies:
            given = self._credentials.cluster.proxy
            return proxy_for(server.scheme, server.host, server.port, given, os.environ)
        return self._proxies[server]

    def uplink(self, server: Server) -> Uplink | None:
        """Return the uplink of connections to a server; None if the node's routes decide.

        Hubs of other nodes are on this node's network. Relays are reached like the cloud.
        """
        if server.lender is not None or not server.is_in_cloud:
            return None
        return server.uplink or self.cloud.working_uplink or self.cloud.uplink

    def proxy_tls(self, proxy: Proxy) -> SSL.Connection:
        """Return TLS to an HTTPS proxy. A lender must be the named node's hub, and gets this node's certificate.

        Any other proxy is verified by the system's CAs, and gets no certificate.
        """
        if isinstance(proxy, Lender):
            return self.tls(
                Server("https", proxy.host, proxy.port, proxy.node), CredentialSource.HUB, [b"http/1.1"]
            )
        return connection_by_system_cas(proxy.host)

    async def connect(self, key: PoolKey, offers: Sequence[bytes] = ALPN_PROTOCOLS) -> Connection:
        """Open a connection. OSError if that fails; failures to connect update the server's health."""
        server = key.server
        try:
            tls = self.tls(server, key.credential_source, [*offers]) if server.scheme == "https" else None
        except (ValueError, SSL.Error) as error:
            raise ConnectionError(f"the credentials cannot be used: {error}") from error
        transport = await self._open_transport(server, tls)
        try:
            await transport.secured()
        except BaseException:
            transport.abort()
            raise
        is_http2 = tls is not None and tls.get_alpn_proto_negotiated() == b"h2"
        prefix = server.prefix.encode()
        made = Http2Connection(prefix) if is_http2 else Http1Connection(prefix)
        transport.start_protocol(made)
        return made

    async def lend(self, server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to a server, over which another hub performs TLS. OSError as in `connect`.

        The reader buffers one read at most, for back-pressure.
        """
        transport = await self._open_transport(server, None)
        if transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        reader = asyncio.StreamReader(limit=1)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport.start_protocol(protocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())

    async def _open_transport(self, server: Server, tls: SSL.Connection | None) -> UpstreamTransport:
        if server.is_in_cloud and (refusal := self.drills.refusal) is not None:
            self.connect_failed(server, str(refusal))
            raise refusal
        try:
            drills, proxy = self.drills if server.is_in_cloud else None, self.proxy(server)
            proxy_tls = self.proxy_tls(proxy) if proxy is not None and proxy.scheme == "https" else None
            return await connect(tls, drills, self.state(server), proxy, proxy_tls, self.uplink(server))
        except OSError as error:
            self.connect_failed(server, str(error))
            raise

    # -- health

    def health(self, server: Server) -> ServerHealth | None:
        """Return the health of a server of the cloud; None for others. `addons.pool` manages the health of hubs."""
        return self.cloud.find(server.name) if not server.node else None

    def state(self, server: Server) -> ServerHealth:
        """Return the health of a server; a new one if the server is no longer configured."""
        return self.cloud.find(server.name) or self.pool.peers().get(server.name) or ServerHealth(server)

    def _ping(self, health: ServerHealth) -> asyncio.Future[float] | None:
        """Ping a server of the cloud over an open connection with the node's identity; None if there is none."""
        return self.connections.ping(self.pool_key(health.server, CredentialSource.HUB, ""))

    def note_request(self, server: Server) -> None:
        """Record a request to a server: from now on the server owes an answer."""
        self.state(server).note_request(self.clock())

    def note_received(self, server: Server) -> None:
        """Record that a server has sent something, so is alive."""
        self.state(server).last_received = self.clock()

    async def confirm(self) -> bool:
        """Probe now, and return whether a server is up."""
        return await self._probes.confirm()

    def answered(self, key: PoolKey, authorization: str, status: int) -> None:
        """Record the status of a server's answer."""
        health = self.state(key.server)
        health.last_received = self.clock()
        health.is_erring |= status >= 500
        if key.credential_source is CredentialSource.OWN:
            self._partitions.answered(authorization, status)
        elif status == 401:
            self.suspect(key.server)  # the node's credentials may have expired
            if not key.server.node and key.credential_source is CredentialSource.HUB:
                self._refused()

    def connect_failed(self, server: Server, message: str) -> None:
        """Record that a connection could not be opened; `message` is asyncio's error."""
        if (health := self.health(server)) is not None:
            self._probes.connect_failed(health, message)

    def suspect(self, server: Server) -> None:
        """Probe a server at once, because a handshake failed or a connection broke during a request."""
        if (health := self.health(server)) is not None:
            self._probes.suspect(health)

    def cut(self, server: Server) -> int:
        """Close the connections to a server; return their number."""
        pools = self.connections, self.upgrades
        return self.pool.cut_lent(server) + sum(pool.cut(lambda key: key.server == server) for pool in pools)

    def _leave(self, uplink: Uplink) -> None:
        """Close the connections of an uplink, so that they are opened again by the current one."""
        for server in (*self.cloud.servers, *self.pool.peers().values()):
            if server.server.uplink == uplink or (server.server.node and server.server.is_in_cloud):
                self.cut(server.server)
        self.cloud.changed.notify()

    def sent(self, server: Server) -> Callable[[int], None]:
        """Return a function that counts body bytes sent to a server."""
        count = _counter("sent" if server.node else "up", server.node, server.url)

        def send(size: int) -> None:
            self.pool.carried(size)
            count(size)

        return count if server.node else send

    def received(self, server: Server, *, is_own_watch: bool = False) -> Callable[[int], None]:
        """Return a function that counts body bytes from a server, and records that the server is alive."""
        count = _counter("received" if server.node else "down", server.node, server.url)
        health = self.state(server)

        def hear(size: int) -> None:
            health.last_received = self.clock()
            if not server.node:
                self.pool.carried(size)
                if not is_own_watch:
                    self.relayed_at = health.last_received
            count(size)

        return hear

    def _drill_changed(self) -> None:
        """Make an offline drill look like an outage: close the connections, and probe the servers."""
        if self.drills.is_offline:
            for health in (*self.cloud.servers, *self.cloud.borrowed, *self.pool.peers().values()):
                if health.server.is_in_cloud:
                    self.cut(health.server)
                    self._probes.suspect(health)


class RelayConnections(NamedTuple):
    """The connections of one relayed request: an `addons.requests.request_context.ServerConnections`."""

    link: UpstreamManager
    key: PoolKey
    is_upgrade: bool
    """Whether the request upgrades to another protocol, which needs an HTTP/1.1 connection of its own."""
    may_open: Callable[[], bool]
    """Returns whether one more connection may be opened."""

    @property
    def server(self) -> Server:
        return self.key.server

    @property
    def scheme(self) -> str:
        return self.server.scheme

    @property
    def host(self) -> str:
        return self.server.host

    @property
    def port(self) -> int:
        return self.server.port

    def available(self) -> Connection | None:
        return self._pool.available(self.key)

    @property
    def _pool(self) -> ConnectionPool[PoolKey]:
        return self.link.upgrades if self.is_upgrade else self.link.connections

    async def opened(self) -> Connection:
        if not self.may_open():
            raise ConnectionError("the hub has too many connections")
        return await self._pool.acquire(self.key)


@lru_cache(maxsize=64)
def _counter(direction: str, node: str, url: str) -> Callable[[int], None]:
    """Return the byte counter of a server. `direction`: up or down for the cloud, sent or received for a hub."""
    if node:
        return metrics.PEER_BYTES.labels(direction, metrics.peer_label(node)).inc
    return metrics.UPSTREAM_BYTES.labels(direction, url).inc
