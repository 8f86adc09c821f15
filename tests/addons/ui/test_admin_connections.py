"""The admin port under clients that stay, and under clients that speak no HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from addons.telemetry import metrics
from addons.ui.admin_connections import MAX_CONNECTIONS, serve
from tests.addons.support.observed import value_of

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
REFUSED = metrics.CONNECTIONS_REFUSED.labels("admin")


async def hello(request: web.Request) -> web.Response:
    if request.query:
        raise ValueError("a fault of the hub")
    return web.Response(text="hello")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    app = web.Application()
    app.add_routes([web.get("/", hello)])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        await serve(app, listening)
        yield listening.getsockname()[1]
        await app.shutdown()


async def said(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def test_beyond_the_bound_the_oldest_connection_goes(port: int) -> None:
    before = value_of(REFUSED)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
    try:
        assert (await said(port, REQUEST)).endswith(b"hello")
        async with asyncio.timeout(20):
            assert await idle[0][0].read() == b""
        assert value_of(REFUSED) == before + 1
        idle[1][1].write(REQUEST)
        async with asyncio.timeout(20):
            assert (await idle[1][0].read()).endswith(b"hello")
    finally:
        for _, writer in idle:
            writer.transport.abort()


async def test_what_is_no_http_is_refused_without_a_word_in_the_log(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await said(port, b"nonsense\r\n\r\n")).startswith(b"HTTP/1.0 400")
    assert caplog.text == ""


async def test_a_fault_of_the_hub_is_logged(port: int, caplog: pytest.LogCaptureFixture) -> None:
    assert b" 500 " in await said(port, REQUEST.replace(b"/ ", b"/?fault=1 "))
    assert "a fault of the hub" in caplog.text
