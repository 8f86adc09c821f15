"""Components of a node that send requests to their hub continuously, and the results."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiohttp

from tests.addons.support.observed import until
from tests.hub.support.process import SLACK

REFUSED = "refused"


class Load:
    """This many clients, which run until their task is cancelled."""

    def __init__(
        self, url: str, path: str, component: str, *, clients: int, connects_anew: bool = False
    ) -> None:
        """With `connects_anew`, each request uses a new connection."""
        self.ends: Counter[str] = Counter()
        """The number of responses with each code, and of refused or aborted connections."""
        self.longest = 0.0
        """The maximum seconds of a request."""
        self._url, self._path, self._clients = url, path, clients
        self._headers, self._connects_anew = {"User-Agent": f"{component}/v1"}, connects_anew

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(force_close=self._connects_anew)
        async with aiohttp.ClientSession(self._url, connector=connector, headers=self._headers) as session:
            await asyncio.gather(*(self._ask(session) for _ in range(self._clients)))

    async def answers(self, count: int) -> None:
        """Wait until `count` more requests were answered."""
        wanted = self.ends["200"] + count
        await until(lambda: self.ends["200"] >= wanted, 2 * SLACK)

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        while True:
            began = time.monotonic()
            try:
                async with session.get(self._path) as answer:
                    await answer.read()
                    self.ends[str(answer.status)] += 1
            except aiohttp.ClientConnectorError:
                self.ends[REFUSED] += 1
            except aiohttp.ClientError:
                self.ends["broken off"] += 1  # the request was in progress in a hub that ended
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.01)
