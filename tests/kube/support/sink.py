"""A transport whose other side is a test."""

from __future__ import annotations

import asyncio


class Sink(asyncio.Transport):
    """Keeps what is written; nothing comes from it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = False
        self._written = b""

    def take(self) -> bytes:
        """What was written since the last time."""
        taken, self._written = self._written, b""
        return taken

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return len(self._written)

    def is_closing(self) -> bool:
        return self.is_gone

    def close(self) -> None:
        self.is_gone = True

    abort = close
