"""A fake of the proxy's open connections that records the servers whose connections with the hub's identity are cut."""

from __future__ import annotations

from collections.abc import Callable

from addons.link.servers import Server
from addons.requests.caller import Listener
from addons.server.limits.open_connections import OpenConnections


class FakeConnections(OpenConnections):
    """Connections with two tunnels to each server, without a limit until `is_full` is set."""

    def __init__(self) -> None:
        self.ended: list[Server] = []
        self.is_full = False

    def count_own(self, own: Callable[[], int]) -> None:
        """Ignore the connection."""

    def has_capacity(self, listener: Listener | None) -> bool:
        return not self.is_full

    def cut_lent(self, server: Server) -> int:
        self.ended.append(server)
        return 2
