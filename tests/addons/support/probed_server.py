"""A probed server whose responses a test chooses."""

from __future__ import annotations

import asyncio
from typing import cast

from addons.link.health import Cloud, ServerHealth
from addons.link.probes import Probes
from addons.link.servers import Server, parse_server
from kube.http.client import Client, RawResponse

A = parse_server("https://a:6443")
OK, BROKEN = 200, 500


class World:
    """A probed server, and a record of the probes."""

    def __init__(self) -> None:
        self.says: int | Exception = 200
        self.delay = 0.0
        self.asks_for = ""
        """The value of the Retry-After header."""
        self.failure = ""
        """The error message of a failed connect, as asyncio formats it."""
        self.asked: list[tuple[str, str]] = []
        self.servers: list[str] = []
        self.cut: list[Server] = []
        self.health = ServerHealth(A)
        self.probe(Cloud([self.health], "priority"))
        self.pings = 0
        self.pong_after: float | None = None
        """Seconds until a ping is answered; None if the connection has no pings."""

    def probe(self, cloud: Cloud) -> None:
        """Build the probes of this cloud; `start` begins them."""
        self.cloud = cloud
        self.probes = Probes(cloud, self._cut, self._ping, lambda: asyncio.get_running_loop().time())

    def start(self) -> None:
        self.probes.start(cast(Client, self))

    def _cut(self, server: Server) -> int:
        self.cut.append(server)
        return 1

    def _ping(self, health: ServerHealth) -> asyncio.Future[float] | None:
        if self.pong_after is None:
            return None
        self.pings += 1
        loop, seconds = asyncio.get_running_loop(), self.pong_after
        pong: asyncio.Future[float] = loop.create_future()

        def answer() -> None:
            if not pong.done():
                health.last_received = loop.time()
                pong.set_result(seconds)

        loop.call_later(seconds, answer)
        return pong

    def was_asked_since(self, count: int) -> bool:
        return len(self.asked) > count

    def at(self, server: str) -> World:
        self.servers.append(server)
        return self

    async def relay(
        self, method: str, path: str, *, headers: tuple[tuple[str, str], ...], body: bytes, timeout: float
    ) -> RawResponse:
        assert (headers, body) == ((), b"")
        self.asked.append((method, path))
        says = self.says
        if self.failure:
            self.probes.connect_failed(self.health, self.failure)
        await asyncio.sleep(self.delay)
        if isinstance(says, Exception):
            raise says
        self.health.last_received = asyncio.get_running_loop().time()
        return RawResponse(says, {"Retry-After": self.asks_for} if self.asks_for else {}, b"ok")
