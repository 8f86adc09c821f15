"""Sends what one event makes the layers write to a connection at once: a head and its body in one packet.

mitmproxy gives each piece to the socket by itself. To send is the dearest part of a small request, and the reader at
the other end wakes for each piece.
"""

from __future__ import annotations

import asyncio
from typing import Any


class GatheringWriter:
    """A stream writer that keeps what is written until `flush`. All else is done with the stream writer itself."""

    def __init__(self, writer: asyncio.StreamWriter, written: list[GatheringWriter]) -> None:
        """`written` gets this writer when there is something to flush."""
        self._writer = writer
        self._written = written
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._written.append(self)
        self._pieces.append(data)

    def flush(self) -> None:
        """Give all to the socket, unless it is closed already."""
        pieces, self._pieces = self._pieces, []
        if pieces and not self._writer.is_closing():
            self._writer.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def write_eof(self) -> None:
        self.flush()
        self._writer.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)
