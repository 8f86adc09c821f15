"""An account without the package kubernetes, for tests of the connections in this process."""

from __future__ import annotations

import aiohttp

from controllers.runtime.connection import SessionOptions


class PlainAccount:
    """A token at a server. `refresh` returns `next_token`; a changed token needs new connections."""

    def __init__(self, server: str, token: str = "") -> None:
        self.server = server
        self.token = self.next_token = token
        self.refreshes: list[bool] = []
        """For each refresh, whether the server had refused the credentials."""
        self.broken = False

    async def load(self) -> None:
        """Load nothing."""

    def headers(self) -> list[tuple[str, str]]:
        return [("Authorization", f"Bearer {self.token}")] if self.token else []

    async def refresh(self, *, refused: bool) -> bool:
        self.refreshes.append(refused)
        if self.broken:
            raise ValueError("broken")
        changed = self.token != self.next_token
        self.token = self.next_token
        return changed

    def open(self, options: SessionOptions) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(**options)
