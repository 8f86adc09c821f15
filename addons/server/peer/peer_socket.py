"""A connection to the peer port: a CONNECT by which another hub borrows this node's link to the cloud, or HTTP.

Only the first message of a connection can open a tunnel, by HTTP/1.1. A later CONNECT is refused as malformed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mitmproxy import connection
from mitmproxy.hooks import Hook

from addons.requests.answers import ClientLeft
from addons.server.messages import error_response
from addons.server.peer.lent_tunnel import CONNECT, MAX_HEAD, LentTunnel, TunnelRequest, parse_connect
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.proxies import END


@dataclass
class OpenTunnelHook(Hook):
    """Another hub of the pool requests a tunnel to the cloud."""

    tunnel_request: TunnelRequest


class PeerSocket(asyncio.Protocol):
    """Opens a tunnel if the connection begins with a CONNECT, otherwise serves HTTP. Implements the tunnel's
    `Borrower`.
    """

    def __init__(
        self,
        client: connection.Client,
        call_hook: Callable[[Any, Callable[[], None]], None],
        make_http: Callable[[], asyncio.Protocol],
    ) -> None:
        self._client, self._call_hook, self._make_http = client, call_hook, make_http
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._http: asyncio.Protocol | None = None
        self._tunnel: LentTunnel | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_full: Callable[[], bool] = bool
        self.is_open = False
        """Whether the tunnel is connected to its server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._http is not None:
            self._http.data_received(data)
        elif self._tunnel is not None:
            self._tunnel.send(data)
            self.server_writable()
        else:
            self._head += data
            if not self._head.startswith(CONNECT):
                if not CONNECT.startswith(self._head):
                    self._serve()
            elif END in self._head or len(self._head) > MAX_HEAD:
                self._lend()

    def eof_received(self) -> bool | None:
        return self._http.eof_received() if self._http is not None else False

    def pause_writing(self) -> None:
        self._writable.clear()
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._http is not None:
            self._http.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        http, tunnel, self._transport, self._http, self._tunnel = self._http, self._tunnel, None, None, None
        self._writable.set()
        self.is_full = bool
        if http is not None:
            http.connection_lost(error)
        if tunnel is not None:
            tunnel.close()

    def _serve(self) -> None:
        assert self._transport is not None
        self._http = self._make_http()
        self._http.connection_made(self._transport)
        self._http.data_received(self._head)

    def _lend(self) -> None:
        try:
            tunnel_request = parse_connect(self._client.id, self._client.peername[0], self._head)
        except StatusError as error:
            metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
            self._refuse(error)
        else:
            self._call_hook(OpenTunnelHook(tunnel_request), lambda: self._begin(tunnel_request))

    def _begin(self, tunnel_request: TunnelRequest) -> None:
        if tunnel_request.lent is None:
            assert tunnel_request.refusal is not None, "a request for a tunnel gets a link or a refusal"
            self._refuse(tunnel_request.refusal)
        elif self._transport is not None:
            self._tunnel = LentTunnel(tunnel_request.lent, self, self._send_back)
            self._tunnel.begin()
            self.server_writable()

    def _refuse(self, refusal: StatusError) -> None:
        if self._transport is not None:
            self._transport.write(error_response(refusal.code, refusal.message))
            self._transport.close()

    # -- the borrower of the tunnel

    async def _send_back(self, data: bytes, is_last: bool) -> None:
        if self._transport is None:
            return
        if data:
            self._transport.write(data)
        if is_last:
            self._transport.close()
        else:
            self.is_open = True

    def server_writable(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self.is_full():
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    async def drained(self) -> None:
        await self._writable.wait()
        if self._transport is None:
            raise ClientLeft
