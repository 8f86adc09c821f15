"""The manager's session: it adds nothing to a request, and a broken answer is an OSError. See test_client for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cloud.sessions import new_session

LATER = 10.0

LIMIT = 2**20
"""Bytes, more than any of these bodies has."""


@asynccontextmanager
async def saying(answer: bytes, asked: list[bytes]) -> AsyncIterator[str]:
    """The URL of a server that says this once, and notes what it was asked."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_only_what_it_is_given_is_sent() -> None:
    asked: list[bytes] = []
    async with (
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", asked) as url,
        new_session() as session,
    ):
        opened = session.open("GET", f"{url}/a%2Fb?x=%20", headers=[("X-Own", "1")], body=None, timeout=LATER)
        async with opened as response:
            assert (response.status, await response.read(LIMIT)) == (200, b"")
    host = url[len("http://") :].encode()
    assert asked == [b"GET /a%2Fb?x=%20 HTTP/1.1\r\nHost: " + host + b"\r\nX-Own: 1\r\n\r\n"]
