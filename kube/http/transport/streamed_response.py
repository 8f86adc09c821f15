"""A response as it comes over one of our own connections, in either version of HTTP."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from multidict import CIMultiDict

from kube.concurrency.pulse import Pulse
from kube.http.session import read_body
from kube.http.transport.request_fields import HeaderFields

MAX_UNTAKEN = 1024 * 1024
"""Bytes of one response that wait for its reader. The peer stops there: a packed watch comes faster than its reader
applies what it unpacks to."""
CHUNK = 64 * 1024
"""Bytes of a response that its reader is given at once, where more wait."""


class NotProcessed(ConnectionResetError):
    """The peer did not process the request (RFC 9113, 8.7): it can be sent again, whatever its method."""


class StreamedResponse:
    """A `kube.http.session.Response`."""

    def __init__(self, stream: int, deadline: float, taken: Callable[[int, int], None]) -> None:
        """`taken` is called with the stream and how many bytes of its window the reader has made room for."""
        self.stream = stream
        self.status = 0
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.is_framed = True
        self.has_ended = False
        self.error: ConnectionResetError | None = None
        self.received: Callable[[int], None] = lambda _: None
        """Called with the size of each piece of the body as it comes."""
        self.seconds = 0.0
        """From the request to status and headers."""
        self._sent = asyncio.get_running_loop().time()
        self._deadline = deadline
        self._pieces: deque[tuple[bytes, int]] = deque()
        """With the bytes of the stream's window that each has."""
        self._taken = taken
        self._changed = Pulse()

    async def begun(self) -> None:
        """Return when status and headers have come."""
        while not self.status:
            await self._next_event()

    async def read(self, limit: int) -> bytes:
        return await read_body(self.chunks(), limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            if self._pieces:
                yield self._next_chunk()
            elif self.has_ended:
                return
            else:
                await self._next_event()

    def begin(self, status: int, fields: HeaderFields) -> None:
        """Take status and headers."""
        for name, value in fields:
            self.headers.add(name.decode(), value.decode(errors="surrogateescape"))
        self.status = status
        self.seconds = asyncio.get_running_loop().time() - self._sent
        self._changed.notify()

    def add(self, piece: bytes, size: int) -> None:
        """Take a piece that has `size` bytes of the stream's window, with its padding."""
        self._pieces.append((piece, size))
        self.received(len(piece))
        self._changed.notify()

    def let_go(self) -> None:
        """Drop what waits for the reader, and make room for as much."""
        if self._pieces:
            self._taken(self.stream, sum(size for _, size in self._pieces))
            self._pieces.clear()

    def end(self) -> None:
        self.has_ended = True
        self._changed.notify()

    def fail(self, error: ConnectionResetError) -> None:
        """Break the response off, unless it is whole."""
        if not self.has_ended and self.error is None:
            self.error = error
            self._changed.notify()

    def _next_chunk(self) -> bytes:
        """Take pieces of CHUNK bytes, or somewhat more."""
        chunk: list[bytes] = []
        length = taken = 0
        while self._pieces and length < CHUNK:
            piece, size = self._pieces.popleft()
            chunk.append(piece)
            length += len(piece)
            taken += size
        self._taken(self.stream, taken)
        return b"".join(chunk)

    async def _next_event(self) -> None:
        if self.error is not None:
            raise self.error
        changed = self._changed.wait()
        async with asyncio.timeout_at(self._deadline):
            await changed
