"""A response that is read while it arrives, over HTTP/2 or HTTP/1.1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from multidict import CIMultiDict

from kube.concurrency.notifier import Notifier
from kube.http.session import read_body
from kube.http.transport.request_fields import HeaderFields
from kube.http.transport.response_sink import MAX_UNREAD, ResponseSink

CHUNK = 64 * 1024
"""The most bytes that the reader gets at once."""


class StreamedResponse(ResponseSink):
    """A `kube.http.session.Response`."""

    def __init__(self, deadline: float, window: int = MAX_UNREAD) -> None:
        """Set `window`, the bytes that the server may send before the reader consumes any."""
        self.first_window = window
        self._came = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.received: Callable[[int], None] = lambda _: None
        """Called with the size of each piece of the body as it arrives."""
        self.seconds = 0.0
        """Seconds from the request to status and headers."""
        self._sent = 0.0
        self._deadline = deadline
        self._waiting = bytearray()
        """The unread bytes. One buffer, because a peer may send its response byte by byte."""
        self._padding = 0
        """Bytes of padding, which also used the window."""
        self._taken: Callable[[ResponseSink, int], None] = _nowhere
        self._changed = Notifier()

    def attach(self, taken: Callable[[ResponseSink, int], None]) -> None:
        """Attach to a connection. `taken` is called with the bytes that the reader has consumed."""
        self._taken = taken
        self._sent = asyncio.get_running_loop().time()

    async def begun(self) -> None:
        """Wait for status and headers."""
        while not self.status:
            await self._next_event()

    async def read(self, limit: int) -> bytes:
        return await read_body(self.chunks(), limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._waiting or self._padding:
                yield self._next_chunk()
            elif self.has_ended:
                return
            else:
                await self._next_event()

    def begin(self, status: int, fields: HeaderFields) -> None:
        for name, value in fields:
            self.headers.add(name.decode(), value.decode(errors="surrogateescape"))
        self.seconds = asyncio.get_running_loop().time() - self._sent
        super().begin(status, fields)

    @property
    def max_unread(self) -> int:
        return min(MAX_UNREAD, self.first_window + self._came)

    def add(self, piece: bytes, size: int) -> None:
        self._came += size
        self._waiting += piece
        self._padding += size - len(piece)
        self.received(len(piece))

    def settle(self) -> None:
        self._changed.notify()

    def _next_chunk(self) -> bytes:
        chunk, padding = bytes(self._waiting[:CHUNK]), self._padding
        del self._waiting[:CHUNK]
        self._padding = 0
        self._taken(self, len(chunk) + padding)
        return chunk

    async def _next_event(self) -> None:
        if self.error is not None:
            raise self.error
        changed = self._changed.wait()
        async with asyncio.timeout_at(self._deadline):
            await changed


def _nowhere(_response: ResponseSink, _size: int) -> None:
    """Do nothing: no response arrives before the request is sent."""
