"""Pauses reading from one side of mitmproxy while the other side does not read.

mitmproxy waits for its sockets' buffers, and no further: what waits for a window of HTTP/2 it collects without end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

LARGEST_READ = 64 * 1024
"""Bytes that are read from a server at once (asyncio's own: 256 KiB)."""
LEAST_READ = 16 * 1024
"""Bytes that are read where there is room for a few: smaller reads would cost more than their memory is worth."""


class ByteReader(Protocol):
    """What mitmproxy uses of a stream."""

    async def read(self, n: int) -> bytes:
        """Up to `n` bytes; none at the end."""


class PausingReader:
    """Reads only while there is room for what it reads, and lets asyncio read no further meanwhile."""

    def __init__(self, reader: ByteReader, room: Callable[[], int], moved: asyncio.Event) -> None:
        """`room` gives the bytes that there is room for, `moved` is set when there may be more."""
        self.inner = reader
        self._room = room
        self._moved = moved

    async def read(self, n: int) -> bytes:
        while (room := self._room()) <= 0:
            if isinstance(self.inner, asyncio.StreamReader):
                pause(self.inner)
            self._moved.clear()
            await self._moved.wait()
        return await self.inner.read(min(n, LARGEST_READ, max(room, LEAST_READ)))

    def let_go(self) -> None:
        """Drop what was read ahead, and what names the connection: it has ended."""
        if isinstance(self.inner, asyncio.StreamReader):
            self.inner._buffer.clear()  # type: ignore[attr-defined]  # of asyncio's stream readers
            if (error := self.inner.exception()) is not None:
                # The reader keeps the error of a connection that its client has reset, and the frames through which
                # it was raised name the reader, the transport and the handler: 60 objects until a full collection.
                error.__traceback__ = None


def pause(reader: asyncio.StreamReader) -> None:
    """Have asyncio read no further until the reader is read from, as when the reader is full.

    A transport that somebody else pauses and resumes would be read without end: the reader takes it for paused still.
    """
    transport = reader._transport  # type: ignore[attr-defined]  # asyncio says so in no other way
    if isinstance(transport, asyncio.Transport) and not reader._paused:  # type: ignore[attr-defined]  # asyncio says so in no other way
        transport.pause_reading()
        reader._paused = True  # type: ignore[attr-defined]  # asyncio says so in no other way
