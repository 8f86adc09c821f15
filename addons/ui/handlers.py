"""Base of the admin port's handlers: requests and their callers, answers, and limits of concurrent requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import orjson
from mitmproxy import connection

from addons.requests.answers import Answer
from addons.requests.peer_user import peer_user
from addons.server.limits.request_bodies import BODY_TIME
from addons.server.request import ServedRequest
from addons.telemetry import metrics
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError, entity_too_large, forbidden, request_timeout, too_many_requests

MAX_WAITING = 8
"""Maximum requests that wait for a report."""
ROOT = 0
NOT_STORED = {"Cache-Control": "no-store"}
"""Header for answers that must not be cached."""

type AdminResponse = Answer | Streamed
type AdminPage = Callable[[AdminRequest], Awaitable[AdminResponse]]
"""A handler of requests. StatusError if the answer is an error."""


class RequestLimit:
    """Limits concurrent requests of one kind; further ones are refused, and counted."""

    def __init__(self, count: int, what: str, refusal: str, *, retry_after: int = 30) -> None:
        """`what` is the metric's label; `retry_after` is in seconds."""
        self.taken = 0
        self._count = count
        self._what = what
        self._refusal = refusal
        self._retry_after = retry_after

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count a request within the context. StatusError 429 if the limit is reached."""
        if self.taken >= self._count:
            metrics.ADMIN_REFUSED.labels(self._what).inc()
            raise too_many_requests(self._refusal, retry_after=self._retry_after)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class ReportQueue:
    """Makes long reports one after the other, so that many requests do not block the hub."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = RequestLimit(MAX_WAITING, "turn", "too many reports are being made", retry_after=1)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until no other report is made. StatusError 429 if MAX_WAITING requests wait already."""
        with self._waiting.slot():
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


class Streamed(NamedTuple):
    """An answer without an end. A StatusError before its first piece becomes the answer.

    A vanished client is noticed only by a failing write, so a stream must yield a piece regularly.
    """

    pieces: AsyncGenerator[bytes]
    headers: Mapping[str, str]


class AdminHub(NamedTuple):
    """The hub, and the state shared by all requests of its admin port."""

    hub: RunningHub
    queue: ReportQueue
    closed: asyncio.Event
    """Set when the hub stops, which ends the streams."""


@dataclass(frozen=True)
class AdminRequest:
    """A request of the admin port, with the hub."""

    asked: AdminHub
    served: ServedRequest
    names: Mapping[str, str]
    """Values of the named groups in the path's pattern."""

    @property
    def hub(self) -> RunningHub:
        return self.asked.hub

    @property
    def is_post(self) -> bool:
        return self.served.head.data.method == b"POST"

    @cached_property
    def parameters(self) -> Mapping[str, list[str]]:
        """The query, with all values of each name."""
        return parse_qs(self.served.head.path.partition("?")[2], keep_blank_values=True)

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query, with the first value of each name."""
        return {name: values[0] for name, values in self.parameters.items()}

    def accepts(self, media: str) -> bool:
        """Whether the client's Accept header contains a media type, or a part of one."""
        return media in (self.served.head.headers.get("Accept") or "")

    async def read(self, limit: int) -> bytes:
        """Return the body. StatusError 413 for more than `limit` bytes, 408 if it does not arrive in time."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIME):
                while piece := await self.served.read():
                    body += piece
                    if len(body) > limit:
                        raise entity_too_large(f"limit is {limit}")
        except TimeoutError:
            raise request_timeout(f"the body did not arrive within {BODY_TIME:.0f} seconds") from None
        return bytes(body)


def for_operator(page: AdminPage) -> AdminPage:
    """Restrict a page to the operator. StatusError as in `refuse_others`."""

    async def guarded(request: AdminRequest) -> AdminResponse:
        await refuse_others(request.served.client, request.hub.settings.plain_users)
        return await page(request)

    return guarded


async def comes_from_operator(request: AdminRequest) -> bool:
    """Whether `refuse_others` accepts the caller."""
    try:
        await refuse_others(request.served.client, request.hub.settings.plain_users)
    except StatusError:
        return False
    return True


async def refuse_others(client: connection.Client, plain_users: frozenset[int]) -> None:
    """Raise StatusError 403 for a caller on another machine, and for a user whom the plain port refuses, too.

    Root and the hub's own user are always accepted.
    """
    peer, own = client.peername[:2], client.sockname[:2]
    if not ip_address(peer[0].partition("%")[0]).is_loopback:
        raise forbidden("only the node's operator may use this: on the node, at a loopback address")
    if not plain_users:
        return
    if await peer_user(peer, own) not in plain_users | {ROOT, os.getuid()}:
        raise forbidden("this user of the node may not read this page")


def text_answer(
    text: str, media: str = "text/plain", *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    fields = {**(headers or {}), "Content-Type": f"{media}; charset=utf-8"}
    return Answer(text.encode(errors="replace"), fields, status)


def json_answer(document: Any) -> Answer:
    return file_answer(orjson.dumps(document, option=orjson.OPT_INDENT_2), "application/json")


def file_answer(content: bytes, media: str) -> Answer:
    return Answer(content, {"Content-Type": media})
