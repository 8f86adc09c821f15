"""Components of a node that ask their hub again and again, and how their requests ended."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiohttp

from tests.addons.support.observed import until
from tests.hub.support.process import SLACK

REFUSED = "refused"


class Load:
    """This many clients, until their task is cancelled."""

    def __init__(
        self, url: str, path: str, component: str, *, clients: int, connects_anew: bool = False
    ) -> None:
        """With `connects_anew`, each request uses a new connection."""
        self.ends: Counter[str] = Counter()
        """The number of answers of each code, and of connections that were refused or broken off."""
        self.longest = 0.0
        """Seconds that a request took at most."""
        self._url, self._path, self._clients = url, path, clients
        self._headers, self._connects_anew = {"User-Agent": f"{component}/v1"}, connects_anew

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(force_close=self._connects_anew)
        async with aiohttp.ClientSession(self._url, connector=connector, headers=self._headers) as session:
            await asyncio.gather(*(self._ask(session) for _ in range(self._clients)))

    async def answers(self, count: int) -> None:
        """Wait until `count` further requests were answered."""
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
                self.ends["broken off"] += 1  # it was under way in a hub that ended
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0.01)
