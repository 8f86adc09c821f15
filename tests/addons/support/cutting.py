"""Stands for the open connections of a proxy, where a test asks which of them are cut."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import connection

from addons.connections import Connections


class Cut(Connections):
    """Remembers whom it was asked to cut."""

    def __init__(self) -> None:
        self.open: list[connection.Server] = []
        self.ended: list[connection.Server] = []

    def cut(self, matches: Callable[[connection.Server], bool]) -> int:
        ended = [conn for conn in self.open if matches(conn)]
        self.ended += ended
        return len(ended)
