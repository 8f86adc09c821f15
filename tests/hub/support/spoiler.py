"""A link between two hubs that spoils what crosses as differences."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from kube.differences.records import CODING, Kind

type Spoil = Callable[[bytes], bytes]
"""Makes of a piece of a stream, which begins with a difference, what crosses in its place."""
HOP = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"""Headers that each side makes itself."""


class Spoiler:
    """Relays requests as they are. The next difference is spoilt when a test asks for it."""

    def __init__(self, target: str) -> None:
        self.url = ""
        self._target = target
        self._session: aiohttp.ClientSession | None = None
        self._spoil: Spoil | None = None
        self._open: set[asyncio.Event] = set()

    def spoil_next(self, spoil: Spoil) -> None:
        self._spoil = spoil

    def end_watches(self) -> None:
        """End all watches cleanly, so that clients open them again. Lists go on to their end."""
        for each in self._open:
            each.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Spoiler]:
        runner = web.ServerRunner(web.Server(self._relay), shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = "http://{}:{}".format(*runner.addresses[0][:2])
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            try:
                yield self
            finally:
                self.end_watches()
                await runner.cleanup()

    async def _relay(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._session is not None
        headers = CIMultiDict(
            (name, text) for name, text in request.headers.items() if name.lower() not in HOP
        )
        async with self._session.request(
            request.method, self._target + request.raw_path, headers=headers, data=await request.read()
        ) as found:
            kept = CIMultiDict(
                (name, text) for name, text in found.headers.items() if name.lower() not in HOP
            )
            answer = web.StreamResponse(status=found.status, headers=kept)
            answer.enable_chunked_encoding()
            await answer.prepare(request)
            is_packed = found.headers.get("Content-Encoding") == CODING
            ended = asyncio.Event()
            if request.query.get("watch"):
                self._open.add(ended)
            # A hub that cannot read what it gets hangs up.
            with contextlib.suppress(aiohttp.ClientConnectionResetError):
                await self._pass(found, answer, ended, is_packed=is_packed)
                await answer.write_eof()
            self._open.discard(ended)
            return answer

    async def _pass(
        self,
        found: aiohttp.ClientResponse,
        answer: web.StreamResponse,
        ended: asyncio.Event,
        *,
        is_packed: bool,
    ) -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(ended.wait())]
        try:
            while True:
                reading = asyncio.create_task(found.content.readany())
                tasks[1:] = [reading]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return
                piece = reading.result()
                if not piece:
                    return
                if is_packed and self._spoil is not None and piece[4] == Kind.DIFFERENCE:
                    spoil, self._spoil = self._spoil, None
                    piece = spoil(piece)
                await answer.write(piece)
        finally:
            for task in tasks:
                task.cancel()
