"""The way of a relayed request through a proxy: the connection to the proxy becomes one to the server."""

from __future__ import annotations

from mitmproxy.connection import Server
from mitmproxy.proxy import commands, layer, tunnel
from mitmproxy.proxy.context import Context

from addons.link.servers import ProxyHost, ServerHost
from kube.http.proxies import END, MAX_HEAD, Proxy


def connection_to(proxy: Proxy, host: ServerHost) -> Server:
    """A connection to a proxy, for a server."""
    return Server(address=(ProxyHost(*host.way, via=proxy), proxy.port))


class ProxyTunnel(tunnel.TunnelLayer):
    """Asks the proxy for the server before anything else is said. The layers above speak to the server."""

    def __init__(self, context: Context, connection: Server, proxy: Proxy) -> None:
        super().__init__(context, tunnel_connection=connection, conn=context.server)
        self._proxy = proxy
        self._head = b""

    def start_handshake(self) -> layer.CommandGenerator[None]:
        assert isinstance(self.conn, Server)
        assert self.conn.address is not None
        yield commands.SendData(self.tunnel_connection, self._proxy.request(*self.conn.address))

    def receive_handshake_data(self, data: bytes) -> layer.CommandGenerator[tuple[bool, str | None]]:
        self._head += data
        head, end, rest = self._head.partition(END)
        if not end and len(head) <= MAX_HEAD:
            return False, None
        try:
            self._proxy.opened(head if end else b"")
        except ConnectionError as error:
            return False, str(error)
        if rest:
            yield from self.receive_data(rest)
        return True, None
