"""An accepted connection: its hooks, its first byte, and the protocol that serves all later bytes."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mitmproxy import connection, ctx
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import server_hooks
from mitmproxy.proxy.mode_specs import ProxyMode

from addons.requests.caller import Listener
from addons.server.clients.client_connection import MAX_READ, ClientConnection
from addons.server.clients.client_tls import TLS_FIRST_BYTE, TlsSocket
from addons.server.clients.http1_client import Http1
from addons.server.clients.http2_client import Http2
from addons.server.peer.peer_socket import PeerSocket
from addons.server.serve import serve

KEEPALIVE_TIMEOUT = 60
"""Seconds of silence after which the kernel closes another hub's connection to the peer port."""

accepted: dict[str, Accepted] = {}
"""The open connections, by mitmproxy's id of the client."""


class Accepted(asyncio.Protocol):
    """The protocol of a client's socket."""

    def __init__(
        self,
        mode: ProxyMode,
        listener: Listener,
        register: Callable[[str, Any], AbstractContextManager[Any]] | None = None,
    ) -> None:
        """Create the protocol. `register` lists the connection in mitmproxy until the context manager exits."""
        self._mode, self._listener, self._register = mode, listener, register
        self._registered: AbstractContextManager[Any] | None = None
        self._socket: asyncio.Transport | None = None
        self._early = b""
        """Bytes received while the addons still handle a hook of the connection."""
        self._hooks = 0
        """Number of running hooks of the connection."""
        self._protocol: asyncio.Protocol | None = None
        self.served: ClientConnection | None = None
        """The HTTP connection; None before the first byte, and for a tunnel of the peer port."""
        self._peer: PeerSocket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        transport.max_size = MAX_READ  # type: ignore[attr-defined]  # asyncio has no other API for it
        if self._listener is Listener.PEER:
            enable_keepalive(transport.get_extra_info("socket"))
        self.client = connection.Client(
            peername=transport.get_extra_info("peername"),
            sockname=transport.get_extra_info("sockname"),
            timestamp_start=time.time(),
            state=ConnectionState.OPEN,
            proxy_mode=self._mode,
        )
        accepted[self.client.id] = self
        if self._register is not None:
            self._registered = self._register(self.client.id, self)
            self._registered.__enter__()
        self._call_hook(server_hooks.ClientConnectedHook(self.client), self._check)

    def _check(self) -> None:
        if self.client.error:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        beyond, self._socket, self._protocol, self.served, self._peer = self._protocol, None, None, None, None
        if beyond is not None:
            beyond.connection_lost(error)
        accepted.pop(self.client.id, None)
        if self._registered is not None:
            self._registered.__exit__(None, None, None)
        self.client.state, self.client.timestamp_end = ConnectionState.CLOSED, time.time()
        self._call_hook(server_hooks.ClientDisconnectedHook(self.client), _nothing)

    def data_received(self, data: bytes) -> None:
        if self._hooks:
            self._early += data
        elif self._protocol is not None:
            self._protocol.data_received(data)
        elif self._socket is not None and not self._socket.is_closing():
            self._start_protocol(self._socket, data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received() if self._protocol is not None else False

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def _start_protocol(self, transport: asyncio.Transport, data: bytes) -> None:
        is_tls = data[0] == TLS_FIRST_BYTE
        self._protocol = (
            TlsSocket(self.client, self._call_hook, self._make_protocol) if is_tls else self._make_protocol()
        )
        self._protocol.connection_made(transport)
        self._protocol.data_received(data)

    def _make_protocol(self) -> asyncio.Protocol:
        if self._listener is Listener.PEER:
            self._peer = PeerSocket(self.client, self._call_hook, self._make_http)
            return self._peer
        return self._make_http()

    def _make_http(self) -> asyncio.Protocol:
        self.served = (Http2 if self.client.alpn == b"h2" else Http1)(self.client, serve)
        return self.served

    def _call_hook(self, hook: Any, then: Callable[[], None]) -> None:
        """Run a hook of the connection, then call `then`. Both are done when this returns, unless an addon awaits
        something."""
        loop = asyncio.get_running_loop()
        task = asyncio.Task(ctx.master.addons.trigger_event(hook), loop=loop, eager_start=True)
        if task.done():
            then()
            return
        self._hooks += 1
        if self._socket is not None:
            self._socket.pause_reading()
        task.add_done_callback(lambda _: self._hook_done(then))

    def _hook_done(self, then: Callable[[], None]) -> None:
        self._hooks -= 1
        then()
        if self._socket is None or self._hooks:
            return
        self._socket.resume_reading()
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._socket is not None:
            self._socket.abort()

    def waits_since(self, connected: float) -> float | None:
        """Return the monotonic time since when the hub has waited for the client to send its first request or the rest
        of a message; None if the hub does not wait."""
        if self._peer is not None and self._peer.is_open:
            return None
        if self.served is None or not self.served.has_served:
            return connected
        return self.served.waits_since


def close_client(client_id: str, why: str) -> bool:
    """Close a client's connection. Return whether it was open."""
    found = accepted.get(client_id)
    if found is None:
        return False
    for request in list(found.served.requests) if found.served is not None else ():
        request.leave(why)
    found.abort()
    return True


def enable_keepalive(conn: socket.socket) -> None:
    """Set TCP keepalive, so that the kernel closes a connection whose peer has vanished. Tunnels may be silent for
    hours.
    """
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_TIMEOUT // 2)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_TIMEOUT // 4)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, KEEPALIVE_TIMEOUT * 1000)


def _nothing() -> None:
    """Do nothing after the connection's last hook."""
