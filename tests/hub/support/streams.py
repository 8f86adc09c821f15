"""Raw clients of the API: watches that record their events, in either encoding, over either HTTP version."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.support.background import beside

EXEC = "/api/v1/namespaces/default/pods/web/exec?command=sh&stdin=true&stdout=true"
WAIT = 30.0
"""Seconds that a test waits for an event, which takes milliseconds, or some seconds on busy cores."""


@dataclass(frozen=True, slots=True)
class Seen:
    type: str
    object: ApiObject
    at: float

    @property
    def name(self) -> str:
        return self.object.name


@dataclass(slots=True)
class Events:
    seen: list[Seen] = field(default_factory=list)
    ended: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, event: Seen) -> None:
        self.seen.append(event)
        self._news.set()

    def end(self) -> None:
        self.ended = True
        self._news.set()

    async def until(self, wanted: Callable[[list[Seen]], bool], timeout: float = WAIT) -> list[Seen]:
        """Return all events so far once the condition holds; TimeoutError shows the received events."""
        try:
            async with asyncio.timeout(timeout):
                while not wanted(self.seen):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            what = [f"{each.type} {each.name}" for each in self.seen]
            raise TimeoutError(f"only {what[-6:]} came, ended: {self.ended}") from None
        return self.seen

    async def first(self, event_type: str, name: str, timeout: float = WAIT) -> Seen:
        def fits(each: Seen) -> bool:
            return (each.type, each.name) == (event_type, name)

        await self.until(lambda seen: any(map(fits, seen)), timeout)
        return next(each for each in self.seen if fits(each))


@asynccontextmanager
async def watching(
    url: str,
    path: str,
    *,
    component: str,
    encoding: Encoding = Encoding.JSON,
    headers: Mapping[str, str] = {},
    **query: str,
) -> AsyncIterator[Events]:
    """Watch over HTTP/1.1; the watch is open from its response headers until the block ends."""
    events = Events()
    connector = aiohttp.TCPConnector(ssl=False)
    sent = {"User-Agent": f"{component}/v1", "Accept": f"{encoding},*/*", **headers}
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(url + path, params={**query, "watch": "true"}, headers=sent) as answer,
    ):
        if answer.status != 200:
            raise AssertionError(f"{answer.status}: {await answer.text()}")
        async with beside(_read(answer, events)):
            yield events


async def _read(answer: aiohttp.ClientResponse, events: Events) -> None:
    encoding = Encoding(answer.content_type)
    reader = codec_for(encoding).frames()
    try:
        async for chunk in answer.content.iter_any():
            for frame in reader.feed(chunk):
                obj = decode_object(encoding, frame.api_version, frame.kind, frame.raw)
                events.add(Seen(frame.type, obj, time.monotonic()))
    finally:
        events.end()


async def listed(
    url: str,
    path: str,
    *,
    component: str,
    encoding: Encoding = Encoding.JSON,
    headers: Mapping[str, str] = {},
    **query: str,
) -> dict[str, ApiObject]:
    """Return the objects of a list by name; AssertionError with the body for any response other than 200."""
    sent = {"User-Agent": f"{component}/v1", "Accept": f"{encoding},*/*", **headers}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(url + path, params=query, headers=sent) as answer,
    ):
        body = await answer.read()
        assert answer.status == 200, f"{answer.status}: {body[:500]!r}"
        got = Encoding(answer.content_type)
    page = codec_for(got).decode_list(body)
    objects = [decode_object(got, page.api_version, page.kind, raw) for raw in page.items]
    return {each.name: each for each in objects}


async def executed(url: str) -> bytes:
    """Return the response to an exec through the hub at this URL."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url + EXEC, protocols=("v5.channel.k8s.io",)) as socket,
    ):
        await socket.send_bytes(b"\x00ls")
        return await asyncio.wait_for(socket.receive_bytes(), WAIT)
