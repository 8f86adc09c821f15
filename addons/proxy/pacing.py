"""Lets a connection to a server bring its bytes as slowly as a drill says."""

from __future__ import annotations

import asyncio
from typing import Protocol

from mitmproxy import connection

from addons.proxy.handlers.hub_handler import handler_of
from addons.proxy.handlers.pausing_reader import PausingReader

AT_ONCE = 0.001
"""Seconds in which asyncio hands out bytes that it already has; what takes longer came over the link just now."""


class Pacing(Protocol):
    """When bytes may go on: `addons.link.drills.Drills.pace`."""

    async def __call__(self, size: int, *, is_first: bool) -> None:
        """Return when so many bytes may go on; OSError where the connection is to break."""


def pace(client: connection.Client, conn: connection.Connection, pacing: Pacing) -> None:
    """Read from the client or a server of its at a pace. To be called before mitmproxy reads from that server."""
    handler = handler_of(client.id)
    transport = handler.transports.get(conn) if handler is not None else None
    reader = transport.reader if transport is not None else None
    if isinstance(reader, PausingReader):
        reader = reader.inner
    if isinstance(reader, asyncio.StreamReader):
        read_at(reader, pacing)


def read_at(reader: asyncio.StreamReader, pacing: Pacing) -> None:
    """Give a reader a pace. It stays the reader that it is: who pauses a connection looks for asyncio's own."""
    read_at_once = reader.read

    async def read(n: int = -1) -> bytes:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        data = await read_at_once(n)
        await pacing(len(data), is_first=loop.time() - asked > AT_ONCE)
        return data

    reader.read = read  # type: ignore[method-assign]  # this one reader's
