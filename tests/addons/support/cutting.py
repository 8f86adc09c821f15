"""Stands for the open connections of a proxy, and notes to which servers the hub cuts those that it lends."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import connection

from addons.link.servers import Server
from addons.proxy.connection_limits import Connections


class Cut(Connections):
    """Has two ways to each server, and room for more."""

    def __init__(self) -> None:
        self.ended: list[Server] = []
        self.is_full = False

    def count_own(self, own: Callable[[], int]) -> None:
        """Nothing is counted."""

    def has_room(self, client: connection.Client) -> bool:
        return not self.is_full

    def cut_lent(self, server: Server) -> int:
        self.ended.append(server)
        return 2
