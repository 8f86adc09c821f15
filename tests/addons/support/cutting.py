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

    def count_own(self, own: Callable[[], int]) -> None:
        """Nothing is counted."""

    def has_room(self, client: connection.Client) -> bool:
        return True

    def pace(self, client: connection.Client, conn: connection.Connection, pacing: Pacing) -> None:
        self.paced.append(conn)

    def cut_server(self, server: Server) -> int:
        ended = [conn for conn in self.open if _leads_to(conn, server)]
        self.ended += ended
        return len(ended)
