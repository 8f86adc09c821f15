"""The base of the admin port's handlers: what a request says and who asks, what is answered, and how many may ask."""

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
"""Requests that wait for their report."""
ROOT = 0
NOT_STORED = {"Cache-Control": "no-store"}
"""The header of answers that are of their moment."""

type AdminResponse = Answer | Streamed
type AdminPage = Callable[[AdminRequest], Awaitable[AdminResponse]]
"""Answers a request; StatusError where that is the answer."""


class RequestLimit:
    """Requests of a kind at once; further ones are refused, and counted."""

    def __init__(self, count: int, what: str, refusal: str, *, retry_after: int = 30) -> None:
        """`what` is the label of the metric; `retry_after` are seconds."""
        self.taken = 0
        self._count = count
        self._what = what
        self._refusal = refusal
        self._retry_after = retry_after

    @contextmanager
    def slot(self) -> Iterator[None]:
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
    """Makes long reports one after the other, so that many requests cost the hub one at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = RequestLimit(MAX_WAITING, "turn", "too many reports are being made", retry_after=1)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until no other report is made; StatusError 429 where MAX_WAITING requests wait already."""
        with self._waiting.slot():
            await self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()


class Streamed(NamedTuple):
    """An answer that has no end of its own. It begins with its first piece: a StatusError before that is the answer.

    A client that vanished is noticed by what is written to it, so a stream has a piece now and then.
    """

    pieces: AsyncGenerator[bytes]
    headers: Mapping[str, str]


class AdminHub(NamedTuple):
    """The hub, and what all requests of its admin port share."""

    hub: RunningHub
    queue: ReportQueue
    closed: asyncio.Event
    """Set when the hub ends, which ends the streams."""


@dataclass(frozen=True)
class AdminRequest:
    """A request of the admin port, and the hub that it asks."""

    asked: AdminHub
    served: ServedRequest
    names: Mapping[str, str]
    """The values for the names in the pattern of the path."""

    @property
    def hub(self) -> RunningHub:
        return self.asked.hub

    @property
    def is_post(self) -> bool:
        return self.served.head.data.method == b"POST"

    @cached_property
    def parameters(self) -> Mapping[str, list[str]]:
        """The query, with each value of a name."""
        return parse_qs(self.served.head.path.partition("?")[2], keep_blank_values=True)

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query, with the first value of each name."""
        return {name: values[0] for name, values in self.parameters.items()}

    def accepts(self, media: str) -> bool:
        """Whether the client names a media type, or a part of one, among what it accepts."""
        return media in (self.served.head.headers.get("Accept") or "")

    async def read(self, limit: int) -> bytes:
        """The body. StatusError 413 for more than `limit` bytes, 408 where it does not come."""
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIME):
                while piece := await self.served.read():
                    body += piece
                    if len(body) > limit:
                        raise entity_too_large(f"limit is {limit}")
        except TimeoutError:
            raise request_timeout(f"the body did not come within {BODY_TIME:.0f} seconds") from None
        return bytes(body)


def for_operator(page: AdminPage) -> AdminPage:
    """A page that answers the operator alone; StatusError as `refuse_others`."""

    async def guarded(request: AdminRequest) -> AdminResponse:
        await refuse_others(request.served.client, request.hub.settings.plain_users)
        return await page(request)

    return guarded


async def comes_from_operator(request: AdminRequest) -> bool:
    """Whether `refuse_others` refuses no caller."""
    try:
        await refuse_others(request.served.client, request.hub.settings.plain_users)
    except StatusError:
        return False
    return True


async def refuse_others(client: connection.Client, plain_users: frozenset[int]) -> None:
    """StatusError 403 for a caller on another machine, and for a user whom the plain port refuses, too.

    Root and the hub's own user may always.
    """
    peer, own = client.peername[:2], client.sockname[:2]
    if not ip_address(peer[0].partition("%")[0]).is_loopback:
        raise forbidden("only the node's operator may ask: on the node, at a loopback address")
    if not plain_users:
        return
    if await peer_user(peer, own) not in plain_users | {ROOT, os.getuid()}:
        raise forbidden("your user of this node may not read this page")


def text_answer(
    text: str, media: str = "text/plain", *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Answer:
    fields = {**(headers or {}), "Content-Type": f"{media}; charset=utf-8"}
    return Answer(text.encode(errors="replace"), fields, status)


def json_answer(document: Any) -> Answer:
    return file_answer(orjson.dumps(document, option=orjson.OPT_INDENT_2), "application/json")


def file_answer(content: bytes, media: str) -> Answer:
    return Answer(content, {"Content-Type": media})
