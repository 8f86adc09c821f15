"""One connection to a server as its bytes go: TCP, a proxy, TLS where the server has it, and the pace of a drill.

TLS is pyOpenSSL's, as of the connections that relay clients' requests: one context says for both whom the hub trusts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from OpenSSL import SSL

from addons.link.drills import Drills
from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.link.uplinks import uplink as uplinks
from addons.link.uplinks.uplink import Uplink
from addons.telemetry import metrics
from kube.http.proxies import Proxy

RECORD = 16 * 1024
"""Bytes of plain text that a record of TLS brings at most."""
MAX_READ = 64 * 1024
"""Bytes that are read from a server at once. All of them are handled before anything else is: a server of HTTP/1.1 that
sends chunks of a byte makes that 40,000 of them in the 256 KiB that asyncio would read."""
SENT, RECEIVED = (metrics.LINK_BYTES.labels(direction).inc for direction in ("up", "down"))
"""Count bytes of the link to the cloud, as sockets have them."""
AT_ONCE = 0.001
"""Seconds between bytes that came over the link together."""


class Wire(asyncio.Transport, asyncio.Protocol):
    """The transport of a protocol, which comes with `speak`, and the protocol of the socket."""

    def __init__(
        self,
        tls: SSL.Connection | None,
        drills: Drills | None,
        health: ServerHealth,
        *,
        is_counted: bool = False,
    ) -> None:
        """`drills` slow down what comes. The server's `health` learns what the connection shows of it. What the link
        to the cloud carries is counted."""
        super().__init__()
        self._tls = tls
        self._drills = drills
        self._health = health
        self._is_counted = is_counted
        self._loop = asyncio.get_running_loop()
        self._greeted: float | None = None
        """When the ClientHello was sent, until the server has said something; in the loop's time."""
        self._socket: asyncio.Transport | None = None
        self._protocol: asyncio.Protocol | None = None
        self._secured: asyncio.Future[None] = self._loop.create_future()
        self._late: deque[bytes] = deque()
        """What a drill holds back."""
        self._is_late = False
        self._pacing: asyncio.Task[None] | None = None
        self._last = 0.0
        """When bytes last came, in the loop's time."""
        self._is_paused = False
        """The protocol reads no further."""
        self._error: Exception | None = None

    async def secured(self) -> None:
        """Return when TLS is agreed on; OSError where it cannot be, in the server's budget."""
        async with asyncio.timeout(self._health.budget.opening):
            await self._secured

    def speak(self, protocol: asyncio.Protocol) -> None:
        """Give this protocol what has come, and what comes."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._tls is not None:
            self._decrypt(self._tls)

    # -- towards the protocol: the transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not data or self._socket is None:
            return
        if self._tls is None:
            self._send(data)
            return
        try:
            self._tls.sendall(data)
        except SSL.Error as error:
            self._fail(ConnectionResetError(_reason(self._tls, error)))
        self._flush(self._tls)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def close(self) -> None:
        if self._socket is not None:
            if self._tls is not None:
                with contextlib.suppress(SSL.Error):
                    self._tls.shutdown()
                self._flush(self._tls)
            self._socket.close()

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._settle()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._tls is not None:
            self._decrypt(self._tls)
        self._settle()

    # -- towards the socket: the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        transport.max_size = MAX_READ  # type: ignore[attr-defined]  # asyncio has no other way
        self._health.connections += 1
        self._health.heard = self._loop.time()
        if self._tls is None:
            self._secured.set_result(None)
        else:
            self._greeted = self._loop.time()
            self._shake_hands(self._tls)

    def data_received(self, data: bytes) -> None:
        if self._is_counted:
            RECEIVED(len(data))
        if self._drills is None or (self._drills.current is None and not self._is_late):
            self._take(data)
            return
        self._late.append(data)
        if not self._is_late:
            self._is_late = True
            self._settle()
            self._pacing = asyncio.create_task(self._pace(self._drills), name="pace of a drill")

    def eof_received(self) -> None:
        if self._protocol is not None and self._tls is None:
            self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._socket = None
        if self._pacing is not None:
            self._pacing.cancel()
        error = self._error or error
        if not self._secured.done():
            self._secured.set_exception(error or ConnectionResetError("the connection was closed"))
            self._secured.exception()  # nobody may wait for it any more
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        self._health.connections -= 1

    def _take(self, data: bytes) -> None:
        self._health.heard = now = self._loop.time()
        if self._greeted is not None:
            self._health.budget.measured(now - self._greeted)
            self._greeted = None
        if self._tls is None:
            if self._protocol is not None:
                self._protocol.data_received(data)
            return
        self._tls.bio_write(data)
        if self._secured.done():
            self._decrypt(self._tls)
        else:
            self._shake_hands(self._tls)

    def _shake_hands(self, tls: SSL.Connection) -> None:
        try:
            tls.do_handshake()
        except SSL.WantReadError:
            self._flush(tls)
            return
        except SSL.Error as error:
            self._flush(tls)  # the alert says to the server what is wrong
            self._fail(ConnectionError(_reason(tls, error)))
            return
        self._flush(tls)
        self._secured.set_result(None)

    def _decrypt(self, tls: SSL.Connection) -> None:
        """Hand on what is whole, at once: a server sends the head of an answer and its body as two records."""
        if self._protocol is None or self._is_paused or self._socket is None:
            return
        records: list[bytes] = []
        end: SSL.Error | None = None
        try:
            while True:
                records.append(tls.recv(RECORD))
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            end = error
        if records:
            self._protocol.data_received(b"".join(records))
        if end is not None:
            self._end(tls, self._protocol, end)
        self._flush(tls)

    def _end(self, tls: SSL.Connection, protocol: asyncio.Protocol, end: SSL.Error) -> None:
        """Tell the protocol that nothing more comes. One that has paused learns it when it reads on."""
        if self._is_paused:
            return
        if isinstance(end, SSL.ZeroReturnError):
            protocol.eof_received()
            self.close()
        else:
            self._fail(ConnectionResetError(_reason(tls, end)))

    def _flush(self, tls: SSL.Connection) -> None:
        with contextlib.suppress(SSL.WantReadError):
            while self._socket is not None:
                self._send(sealed := tls.bio_read(4 * RECORD))
                if len(sealed) < 4 * RECORD:
                    return

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        assert self._socket is not None
        if self._is_counted:
            SENT(len(data))
        self._socket.write(data)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        if self._socket is not None:
            self._socket.close()

    async def _pace(self, drills: Drills) -> None:
        """Hand on what a drill holds back when a slow link would have brought it."""
        while self._late:
            data = self._late.popleft()
            try:
                await drills.pace(len(data), is_first=self._loop.time() - self._last > AT_ONCE)
            except OSError as error:
                self._error = error
                self.abort()
                return
            self._last = self._loop.time()
            self._take(data)
        self._is_late = False
        self._settle()

    def _settle(self) -> None:
        """Read from the socket, or leave it to the server to wait."""
        if self._socket is None or self._socket.is_closing():
            return
        if self._is_paused or self._is_late:
            self._socket.pause_reading()
        else:
            self._socket.resume_reading()


class Tunnel(asyncio.Protocol):
    """Speaks to the proxy until the tunnel is open."""

    def __init__(self, proxy: Proxy, server: Server, beyond: asyncio.Protocol) -> None:
        """`beyond` gets the connection when it leads to the server."""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Set when it does; ConnectionError where it cannot."""
        self._proxy = proxy
        self._server = server
        self._beyond = beyond
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
        self._transport.set_protocol(self._beyond)
        self._beyond.connection_made(self._transport)
        if rest:
            self._beyond.data_received(rest)
        if not self.opened.done():
            self.opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(ConnectionResetError(f"the proxy {self._proxy} closed the connection"))

    def _fail(self, error: ConnectionError) -> None:
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # nobody may wait for it any more


async def connect(
    tls: SSL.Connection | None,
    drills: Drills | None,
    health: ServerHealth,
    proxy: Proxy | None = None,
    proxy_tls: SSL.Connection | None = None,
    uplink: Uplink | None = None,
) -> Wire:
    """An open wire to a server, over which nobody speaks yet. OSError where there is none in the server's budget.

    `proxy_tls` is TLS with the proxy.
    """
    server, seconds = health.server, health.budget.opening
    is_on_link = server.is_in_cloud and server.lender is None
    wire = Wire(tls, drills, health, is_counted=is_on_link and proxy is None)
    if proxy is None:
        async with asyncio.timeout(seconds):
            await uplinks.connect(lambda: wire, server.host, server.port, uplink)
        return wire
    # What the way to the proxy shows is nothing about the server.
    nobody = ServerHealth(Server(proxy.scheme, proxy.host, proxy.port))
    outer = Wire(proxy_tls, None, nobody, is_counted=is_on_link)
    async with asyncio.timeout(seconds):
        await uplinks.connect(lambda: outer, proxy.host, proxy.port, uplink)
    try:
        await outer.secured()
        tunnel = Tunnel(proxy, server, wire)
        outer.speak(tunnel)
        async with asyncio.timeout(seconds):
            await tunnel.opened
    except BaseException:
        outer.abort()
        raise
    return wire


def _reason(tls: SSL.Connection, error: SSL.Error) -> str:
    """What is wrong, in OpenSSL's words."""
    errors = error.args[0] if error.args else ()
    reason = str(errors[-1][-1]) if isinstance(errors, list) and errors else "the connection was closed"
    if "certificate verify failed" not in reason:
        return reason
    library, ffi = SSL._lib, SSL._ffi  # type: ignore[attr-defined]  # pyOpenSSL has no call for it
    told = library.X509_verify_cert_error_string(library.SSL_get_verify_result(tls._ssl))
    return f"Certificate verify failed: {ffi.string(told).decode()}"
