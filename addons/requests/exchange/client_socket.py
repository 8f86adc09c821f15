"""A client's socket as mitmproxy's handler sees it: reads that pause, and writes that are gathered."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

from addons.requests.exchange.client_addresses import ClientAddress

LARGEST_READ = 16 * 1024
"""Bytes that are read from a client at once. As much twice is read ahead, where asyncio itself reads 384 KiB ahead."""

VANISHED = 60
"""Seconds without a sign of another node's hub, after which its connection to the peer port ends."""


MAX_UNWRITTEN = 4 * 1024
"""Bytes that may wait for a client's socket before what answers it waits, too. The kernel has hundreds of KiB more."""


class PausingReader:
    """Reads only while there is room for what it reads, in turn, and lets asyncio read no further meanwhile.

    mitmproxy waits for its sockets' buffers, and no further: what waits for a window of HTTP/2 it collects without end.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        is_full: Callable[[], bool],
        moved: asyncio.Event,
        address: ClientAddress,
    ) -> None:
        """`is_full` says that there is no room now, `moved` is set when there may be; `address` is the client's."""
        self._reader = reader
        self._is_full = is_full
        self._moved = moved
        self._address = address
        reader._limit = LARGEST_READ // 2  # type: ignore[attr-defined]  # it holds twice that, and one read more
        reader._transport.max_size = LARGEST_READ  # type: ignore[attr-defined]  # asyncio says so in no other way

    async def read(self, n: int) -> bytes:
        while self._is_full():
            pause(self._reader)
            self._moved.clear()
            await self._moved.wait()
        data = await self._reader.read(min(n, LARGEST_READ))
        await self._address.turn()
        return data

    def let_go(self) -> None:
        """Drop what was read ahead, and what names the connection: it has ended."""
        self._is_full = bool
        self._reader._buffer.clear()  # type: ignore[attr-defined]  # of asyncio's stream readers
        if (error := self._reader.exception()) is not None:
            # The reader keeps the error of a connection that its client has reset, and the frames through which it
            # was raised name the reader, the transport and the handler: 60 objects until a full collection.
            error.__traceback__ = None


def pause(reader: asyncio.StreamReader) -> None:
    """Have asyncio read no further until the reader is read from, as when the reader is full.

    A transport that somebody else pauses and resumes would be read without end: the reader takes it for paused still.
    """
    transport = reader._transport  # type: ignore[attr-defined]  # asyncio says so in no other way
    if isinstance(transport, asyncio.Transport) and not reader._paused:  # type: ignore[attr-defined]  # asyncio says so in no other way
        transport.pause_reading()
        reader._paused = True  # type: ignore[attr-defined]  # asyncio says so in no other way


class GatheringWriter:
    """A stream writer that keeps what is written until `flush`: a head and its body go in one packet.

    mitmproxy gives each piece to the socket by itself. To send is the dearest part of a small request, and the reader
    at the other end wakes for each piece. All else is done with the stream writer itself.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._pieces: list[bytes] = []
        writer.transport.set_write_buffer_limits(MAX_UNWRITTEN)
        ended = writer._protocol._closed  # type: ignore[attr-defined]  # asyncio says so in no other way
        ended.add_done_callback(_forget_frames)

    @property
    def unsent(self) -> int:
        """Bytes that the socket has no room for."""
        size: int = 0 if self._writer.is_closing() else self._writer.transport.get_write_buffer_size()
        return size

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def flush(self) -> None:
        """Give all to the socket, unless it is closed already."""
        if self._pieces and not self._writer.is_closing():
            self._writer.write(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
        self._pieces.clear()

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def write_eof(self) -> None:
        self.flush()
        self._writer.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


def _forget_frames(ended: asyncio.Future[None]) -> None:
    """Drop the frames of an error that has ended a connection: they name its writer, which keeps the error."""
    try:
        ended.result()  # it keeps the frames beside the error until somebody asks
    except Exception as error:
        error.__traceback__ = None


def end_with_its_peer(conn: socket.socket) -> None:
    """Have the kernel end a connection whose other end is gone without a word: a tunnel may be silent for hours."""
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, VANISHED // 2)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, VANISHED // 4)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, VANISHED * 1000)
