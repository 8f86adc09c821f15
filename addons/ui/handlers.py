"""The base of the admin port's handlers: the hub, the caller and the bound of requests, and endless answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from addons.requests.peer_user import peer_user
from addons.telemetry import metrics
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError, forbidden, too_many_requests

MAX_WAITING = 8
"""Requests that wait for their report."""
ROOT = 0


class RequestLimit:
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
        self._waiting = RequestLimit(MAX_WAITING, "turn", "too many reports are being made", retry_after=1)

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


def for_operator(handler: Handler) -> Handler:
    """A handler that answers the operator alone; StatusError as `refuse_others`."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        await refuse_others(request, request.app[HUB].settings.plain_users)
        return await handler(request)

    return guarded


async def comes_from_operator(request: web.Request) -> bool:
    """Whether `refuse_others` refuses nobody."""
    try:
        await refuse_others(request, request.app[HUB].settings.plain_users)
    except StatusError:
        return False
    return True


async def refuse_others(request: web.Request, plain_users: frozenset[int]) -> None:
    """StatusError 403 for a caller on another machine, and for a user whom the plain port refuses, too.

    Root and the hub's own user may always.
    """
    transport = request.transport
    if transport is None:
        raise forbidden("the connection is gone")
    peer, own = transport.get_extra_info("peername")[:2], transport.get_extra_info("sockname")[:2]
    if not ip_address(peer[0].partition("%")[0]).is_loopback:
        raise forbidden("only the node's operator may ask: on the node, at a loopback address")
    if not plain_users:
        return
    if await peer_user(peer, own) not in plain_users | {ROOT, os.getuid()}:
        raise forbidden("your user of this node may not read this page")


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
