"""The layers of one connection to a server: TCP, a proxy, a drill's rate limit, and TLS if the server has it."""

from __future__ import annotations

import asyncio
from collections import deque

from OpenSSL import SSL

from addons.link.drills import Drills
from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.link.tls import refusal_of
from addons.link.tls_transport import TlsTransport, TransportLayer
from addons.link.uplinks import uplink as uplinks
from addons.link.uplinks.uplink import Uplink
from addons.telemetry import metrics
from kube.http.proxies import Proxy

MAX_READ = 64 * 1024
"""Maximum bytes of one read from a server, all handled before other work.

An HTTP/1.1 server that sends chunks of one byte would fit 40,000 of them into the 256 KiB that asyncio reads by
default.
"""
SENT, RECEIVED = (metrics.LINK_BYTES.labels(direction).inc for direction in ("up", "down"))
"""Counters of the bytes on the link to the cloud, as sent and received by sockets."""
BURST_GAP = 0.001
"""Maximum seconds between received bytes that count as one burst, without a new latency."""


class UpstreamTransport(TransportLayer):
    """The layer between socket and TLS: counts bytes, and delays them by a drill."""

    def __init__(
        self,
        tls: SSL.Connection | None,
        drills: Drills | None,
        health: ServerHealth,
        *,
        is_counted: bool = False,
    ) -> None:
        """`drills` delays received bytes. The connection updates the server's `health`.

        `is_counted`: its bytes count as bytes on the link to the cloud.
        """
        super().__init__()
        self._secure = ServerTls(tls, health) if tls is not None else None
        self._protocol = self._secure
        self._drills = drills
        self._health = health
        self._is_counted = is_counted
        self._loop = asyncio.get_running_loop()
        self._delayed: deque[bytes] = deque()
        """Received bytes that a drill delays."""
        self._is_delaying = False
        self._pacing: asyncio.Task[None] | None = None
        self._last = 0.0
        """Time on the event loop's clock at which bytes were last delivered."""
        self._is_paused = False
        """Whether the protocol has paused reading."""
        self._error: Exception | None = None

    async def secured(self) -> None:
        """Return after the TLS handshake. OSError if it fails, or exceeds the server's timeouts."""
        if self._secure is not None:
            async with asyncio.timeout(self._health.timeouts.opening):
                await self._secure.secured

    def start_protocol(self, protocol: asyncio.Protocol) -> None:
        """Pass received bytes to this protocol, decrypted if there is TLS."""
        if self._secure is not None:
            self._secure.start_protocol(protocol)
        else:
            super().start_protocol(protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._below is None:
            return
        if self._is_counted:
            SENT(len(data))
        self._below.write(data)

    def pause_reading(self) -> None:
        self._is_paused = True
        self._update_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._update_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.max_size = MAX_READ  # type: ignore[attr-defined]  # asyncio has no other API
        self._health.connections += 1
        self._health.last_received = self._loop.time()
        if self._secure is not None:
            self._secure.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._is_counted:
            RECEIVED(len(data))
        if self._drills is None or (self._drills.current is None and not self._is_delaying):
            self._deliver(data)
            return
        self._delayed.append(data)
        if not self._is_delaying:
            self._is_delaying = True
            self._update_reading()
            self._pacing = asyncio.create_task(self._pace(self._drills), name="pace of a drill")

    def connection_lost(self, error: Exception | None) -> None:
        if self._pacing is not None:
            self._pacing.cancel()
        super().connection_lost(self._error or error)
        self._health.connections -= 1

    def _deliver(self, data: bytes) -> None:
        self._health.last_received = self._loop.time()
        super().data_received(data)

    async def _pace(self, drills: Drills) -> None:
        """Deliver bytes that a drill delays, when a slow link would have delivered them."""
        while self._delayed:
            data = self._delayed.popleft()
            try:
                await drills.pace(len(data), is_first=self._loop.time() - self._last > BURST_GAP)
            except OSError as error:
                self._error = error
                self.abort()
                return
            self._last = self._loop.time()
            self._deliver(data)
        self._is_delaying = False
        self._update_reading()

    def _update_reading(self) -> None:
        """Pause or resume reading from the server's socket: paused while the protocol pauses or a drill delays
        bytes.
        """
        if self._below is None or self._below.is_closing():
            return
        if self._is_paused or self._is_delaying:
            self._below.pause_reading()
        else:
            self._below.resume_reading()


class ServerTls(TlsTransport):
    """TLS to a server. The handshake measures the round trip."""

    def __init__(self, tls: SSL.Connection, health: ServerHealth) -> None:
        super().__init__()
        self._ssl_conn, self._health = tls, health
        self._loop = asyncio.get_running_loop()
        self.secured: asyncio.Future[None] = self._loop.create_future()
        self._hello_sent_at: float | None = None
        """Time on the event loop's clock at which the ClientHello was sent; None once the server has answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._hello_sent_at = self._loop.time()
        self.start(self._ssl_conn)

    def data_received(self, data: bytes) -> None:
        if self._hello_sent_at is not None:
            self._health.timeouts.measured(self._loop.time() - self._hello_sent_at)
            self._hello_sent_at = None
        super().data_received(data)

    def handshake_done(self, tls: SSL.Connection) -> None:
        if not self.secured.done():  # its waiter may be gone
            self.secured.set_result(None)

    def handshake_failed(self, tls: SSL.Connection, why: str) -> None:
        self.fail(ConnectionError(refusal_of(tls) or why))

    def connection_lost(self, error: Exception | None) -> None:
        error = self._error or error
        if not self.secured.done():
            self.secured.set_exception(error or ConnectionResetError("the connection was closed"))
            self.secured.exception()  # marks the exception as retrieved: its waiter may be gone
        super().connection_lost(error)


class Tunnel(asyncio.Protocol):
    """Negotiates with a proxy until the tunnel is open."""

    def __init__(self, proxy: Proxy, server: Server, protocol: asyncio.Protocol) -> None:
        """`protocol` gets the connection once it leads to the server."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes when the tunnel is open; ConnectionError if the proxy refuses it."""
        self._proxy = proxy
        self._server = server
        self._after_tunnel = protocol
        self._transport: asyncio.Transport | None = None
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._proxy.request(self._server.host, self._server.port))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._answer += data
        try:
            rest = self._proxy.rest_of(self._answer)
        except ConnectionError as error:
            self._fail(error)
            self._transport.abort()
            return
        if rest is None:
            return
        self._transport.set_protocol(self._after_tunnel)
        self._after_tunnel.connection_made(self._transport)
        if rest:
            self._after_tunnel.data_received(rest)
        if not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionResetError(f"the proxy {self._proxy} closed the connection"))

    def _fail(self, error: ConnectionError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # marks the exception as retrieved: its waiter may be gone


async def connect(
    tls: SSL.Connection | None,
    drills: Drills | None,
    health: ServerHealth,
    proxy: Proxy | None = None,
    proxy_tls: SSL.Connection | None = None,
    uplink: Uplink | None = None,
) -> UpstreamTransport:
    """Open a connection to a server. OSError if it does not open within the server's timeouts.

    `proxy_tls` is TLS to the proxy.
    """
    server, seconds = health.server, health.timeouts.opening
    is_on_link = server.is_in_cloud and server.lender is None
    transport = UpstreamTransport(tls, drills, health, is_counted=is_on_link and proxy is None)
    if proxy is None:
        async with asyncio.timeout(seconds):
            await uplinks.connect(lambda: transport, server.host, server.port, uplink)
        return transport
    # The connection to the proxy says nothing about the server's health.
    proxy_health = ServerHealth(Server(proxy.scheme, proxy.host, proxy.port))
    outer = UpstreamTransport(proxy_tls, None, proxy_health, is_counted=is_on_link)
    async with asyncio.timeout(seconds):
        await uplinks.connect(lambda: outer, proxy.host, proxy.port, uplink)
    try:
        await outer.secured()
        tunnel = Tunnel(proxy, server, transport)
        outer.start_protocol(tunnel)
        async with asyncio.timeout(seconds):
            await tunnel.opened
    except BaseException:
        outer.abort()
        raise
    return transport
