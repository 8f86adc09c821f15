"""Connections of a client that sends and reads raw bytes."""

from __future__ import annotations

import asyncio


async def said(port: int, data: bytes) -> bytes:
    """Send bytes; return the server's response until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def connected(port: int, number: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open this number of connections, and send nothing."""
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
