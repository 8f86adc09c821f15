"""Stands for the open connections of a proxy, and notes which of them the hub cuts."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import connection

from addons.connections import Connections, _leads_to
from addons.link.servers import Server
from addons.proxy.pacing import Pacing


class Cut(Connections):
    """Remembers the servers whose connections the hub cut."""

    def __init__(self) -> None:
        self.open: list[connection.Server] = []
        self.ended: list[connection.Server] = []
        self.paced: list[connection.Connection] = []

    def pace(self, client: connection.Client, conn: connection.Connection, pacing: Pacing) -> None:
        self.paced.append(conn)

    def cut_server(self, server: Server) -> int:
        return self.cut(lambda conn: _leads_to(conn, server))

    def cut(self, matches: Callable[[connection.Server], bool]) -> int:
        ended = [conn for conn in self.open if matches(conn)]
        self.ended += ended
        return len(ended)
