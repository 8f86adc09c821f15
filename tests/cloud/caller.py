"""JSON over HTTP to a Kubernetes API, asynchronous, for tests whose cloud runs in their own event loop. It uses no code
of the product, so that it does not share its bugs."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import aiohttp

from kube.json_type import Json
from tests.cloud.rest import MERGE_PATCH, Answer

PATIENCE = 20.0
"""Seconds for a response or for the next event: a real server on busy cores needs one."""


class EventStream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.headers: Mapping[str, str] = response.headers

    async def next(self) -> Json:
        """Return the next event; EOFError when the server ends the stream."""
        async with asyncio.timeout(PATIENCE):
            line = await self._response.content.readline()
        if not line.endswith(b"\n"):
            raise EOFError(line)
        event = json.loads(line)
        assert isinstance(event, dict)
        return event

    async def take(self, count: int) -> list[Json]:
        return [await self.next() for _ in range(count)]

    async def until(self, event_type: str) -> list[Json]:
        """Return all events up to and including the first of this type."""
        events = [await self.next()]
        while events[-1]["type"] != event_type:
            events.append(await self.next())
        return events

    async def rest(self) -> list[Json]:
        """Return all events until the server ends the stream."""
        events = []
        try:
            while True:
                events.append(await self.next())
        except EOFError:
            return events

    async def received(self) -> bytes:
        """Return all bytes until the connection is lost."""
        received = bytearray()
        async with asyncio.timeout(PATIENCE):
            with suppress(aiohttp.ClientPayloadError):
                while chunk := await self._response.content.readany():
                    received += chunk
        return bytes(received)

    async def raw(self) -> bytes:
        """Return all bytes until the server ends the stream."""
        async with asyncio.timeout(PATIENCE):
            return await self._response.read()


class Caller:
    """A client with one identity; an asynchronous context manager."""

    def __init__(
        self, url: str, *, context: ssl.SSLContext | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self._context = context
        self._headers = {
            "User-Agent": "edgehub-tests",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **(headers or {}),
        }

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context or True, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=PATIENCE),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; return its response whatever its status. A body other than bytes is sent as JSON."""
        encoded = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        data = io.BytesIO(encoded) if encoded or body is not None else None
        sent = {**self._headers, "Content-Type": content_type, **(headers or {})}
        async with (
            asyncio.timeout(PATIENCE),
            self._session.request(method, self.url + path, params=query, data=data, headers=sent) as response,
        ):
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **query: str) -> Json:
        return _good(await self.send("GET", path, query=query))

    async def post(self, path: str, body: object) -> Json:
        return _good(await self.send("POST", path, body=body))

    async def put(self, path: str, body: object) -> Json:
        return _good(await self.send("PUT", path, body=body))

    async def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> Json:
        return _good(await self.send("PATCH", path, body=body, content_type=content_type))

    async def delete(self, path: str, **query: str) -> Json:
        return _good(await self.send("DELETE", path, query=query))

    @asynccontextmanager
    async def watch(
        self, path: str, headers: Mapping[str, str] | None = None, /, **query: str
    ) -> AsyncIterator[EventStream]:
        """Open a watch, which must be answered 200. It lasts a minute at most."""
        asked = {"watch": "true", "timeoutSeconds": "60", **query}
        sent = {**self._headers, **(headers or {})}
        async with self._session.get(self.url + path, params=asked, headers=sent) as response:
            assert response.status == 200, await response.read()
            try:
                yield EventStream(response)
            finally:
                # A graceful close of an open TLS connection would exceed the test's time.
                if response.connection and response.connection.transport:
                    response.connection.transport.abort()


def _good(reply: Answer) -> Json:
    assert reply.status < 400, reply
    return reply.json()
