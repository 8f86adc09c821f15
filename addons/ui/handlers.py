"""What the handlers of the admin port share: the hub, places for those who ask at once, and answers without an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import orjson
from aiohttp import web

from addons.telemetry import metrics
from addons.ui.running_hub import RunningHub
from kube.errors import too_many_requests

MAX_WAITING = 8
"""Requests that wait for their report."""


class Places:
    """So many may ask for something at once; the others are refused, and counted."""

    def __init__(self, count: int, what: str, refusal: str, *, retry_after: int = 30) -> None:
        """`what` is the label of the metric; `retry_after` are seconds."""
        self.taken = 0
        self._count = count
        self._what = what
        self._refusal = refusal
        self._retry_after = retry_after

    @contextmanager
    def take(self) -> Iterator[None]:
        """StatusError 429 where no place is free."""
        if self.taken >= self._count:
            metrics.ADMIN_REFUSED.labels(self._what).inc()
            raise too_many_requests(self._refusal, retry_after=self._retry_after)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class ReportQueue:
    """Makes long reports one after the other: who asks for many costs the hub one at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = Places(MAX_WAITING, "turn", "too many reports are being made", retry_after=1)

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait until no other report is made; StatusError 429 where MAX_WAITING requests wait already."""
        with self._waiting.take():
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


HUB = web.AppKey("hub", RunningHub)
QUEUE = web.AppKey("queue", ReportQueue)
CLOSED = web.AppKey("closed", asyncio.Event)
"""Set when the hub ends, which ends the streams."""


def json_response(document: Any) -> web.Response:
    return web.Response(
        body=orjson.dumps(document, option=orjson.OPT_INDENT_2), content_type="application/json"
    )


async def stream(
    request: web.Request, pieces: AsyncGenerator[bytes, None], headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send pieces as they come, until there are no more, the person leaves, or the hub ends.

    To write fails once the person has left, so who has nothing to tell sends an empty piece now and then.
    """
    response = web.StreamResponse(headers={"Cache-Control": "no-store", **headers})
    try:
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
            if request.app[CLOSED].is_set():
                break
        await response.write_eof()
    except ConnectionResetError:
        pass  # the person has left
    finally:
        await pieces.aclose()
    return response
