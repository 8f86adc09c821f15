"""A request to a hub without a connection: the status of its answer, and the pieces of the body as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL


class Exchange(AbstractStreamWriter):
    """Takes an answer as aiohttp writes it, or as an `addons.requests.client_request.ClientStream`."""

    def __init__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        self.request, self.body = _request(self, method, target, headers, body), body
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.reads = asyncio.Event()
        """Whether the client reads what comes."""
        self.reads.set()
        self.headers: Mapping[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        """What answers the request."""
        self._is_cut = False
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    def close(self) -> None:
        """Break the connection off, from either side."""
        if self.task is not None:
            self.task.cancel()

    def end(self, task: asyncio.Task[None]) -> None:
        """The answer is over, whole or broken off."""
        self._is_cut = task.cancelled() or task.exception() is not None
        if not self.status.done():
            self.status.set_exception(ConnectionResetError("the connection was closed"))
            self.status.exception()
        self._pieces.put_nowait(None)

    async def pieces(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece
        if self._is_cut:
            raise ConnectionResetError("the connection was closed")

    async def whole(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def begun(self) -> bool:
        return True

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        await self.reads.wait()
        self._pieces.put_nowait(bytes(chunk))

    def outlet(self) -> Callable[[bytes], bool]:
        def send(data: bytes) -> bool:
            if self.reads.is_set():
                self._pieces.put_nowait(data)
            return self.reads.is_set()

        return send

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        if not self.status.done():
            self.headers = headers
            self.status.set_result(int(status_line.split()[1]))

    async def write_eof(self, chunk: bytes = b"") -> None: ...
    async def drain(self) -> None: ...
    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None: ...
    def enable_chunking(self) -> None: ...

    async def give(self, response: web.StreamResponse) -> None:
        """Take an answer that is whole; one that was written piece by piece is here already."""
        if not self.status.done():
            self.headers = response.headers
            self.status.set_result(response.status)
            body: Any = response.body if isinstance(response, web.Response) else b""
            # The hub's lists are a payload of aiohttp, which holds what it writes.
            await self.write(
                bytes(getattr(body, "_body", None) or getattr(body, "_value", None) or body or b"")
            )


class _NoConnection(BaseProtocol):
    """What a request of aiohttp asks of its connection."""

    ssl_context = peername = sockname = None


def _request(
    exchange: Exchange, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> web.BaseRequest:
    """The request as the origin gets it."""
    fields = CIMultiDictProxy(CIMultiDict(headers))
    raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
    url = URL(target, encoded=True)
    message = RawRequestMessage(method, target, HttpVersion11, fields, raw, False, None, False, False, url)
    loop = asyncio.get_running_loop()
    protocol = cast(Any, _NoConnection(loop))
    payload = EMPTY_PAYLOAD
    if body:
        payload = StreamReader(protocol, 2**20, loop=loop)
        payload.feed_data(body)
        payload.feed_eof()
    return web.BaseRequest(message, payload, protocol, exchange, cast(Any, None), loop)
