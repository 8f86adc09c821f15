"""A server with clients that stay connected, never complete a handshake, or do not use HTTP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import pytest
from aiohttp import web

from controllers.runtime import bounded_server
from controllers.runtime.bounded_server import MAX_CONNECTIONS, BoundedServer, listen
from tests.cloud.pki import Authority
from tests.support.raw_connections import connected, said

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def hello(request: web.Request) -> web.Response:
    if request.query:
        raise ValueError("a fault of the server")
    return web.Response(text="hello")


class Served:
    """A server of one page that counts connections closed to accept another one."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.refused = 0
        self.answering = asyncio.Event()
        self.ended = asyncio.Event()
        app = web.Application()
        app.add_routes([web.get("/", hello), web.get("/long", self._long), web.post("/body", self._body)])
        self._server = BoundedServer(app, self._count, context=context)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    async def __aenter__(self) -> Self:
        await self._server.start([self._socket])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.finish()
        self._socket.close()

    def _count(self) -> None:
        self.refused += 1

    async def _body(self, request: web.Request) -> web.Response:
        self.answering.set()
        try:
            await request.read()
        finally:
            self.ended.set()
        return web.Response(text="read")

    async def _long(self, _: web.Request) -> web.Response:
        self.answering.set()
        await self.ended.wait()
        return web.Response(text="at last")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as made:
        yield made


@pytest.fixture
def port(served: Served) -> int:
    return served.port


async def test_beyond_the_bound_the_longest_idle_connection_is_closed(served: Served) -> None:
    idle = await connected(served.port, MAX_CONNECTIONS)
    try:
        assert (await said(served.port, REQUEST)).endswith(b"hello")
        async with asyncio.timeout(20):
            assert await idle[0][0].read() == b""
        assert served.refused == 1
        idle[1][1].write(REQUEST)
        async with asyncio.timeout(20):
            assert (await idle[1][0].read()).endswith(b"hello")
    finally:
        for _, writer in idle:
            writer.transport.abort()


async def test_a_connection_with_a_running_request_is_not_closed(served: Served) -> None:
    long = asyncio.create_task(said(served.port, REQUEST.replace(b"/ ", b"/long ")))
    await served.answering.wait()
    idle = await connected(served.port, MAX_CONNECTIONS + 2)
    try:
        assert (await said(served.port, REQUEST)).endswith(b"hello")
        served.ended.set()
        assert (await long).endswith(b"at last")
        assert served.refused > 2
    finally:
        for _, writer in idle:
            writer.transport.abort()


async def test_clients_without_a_tls_handshake_lock_out_no_client() -> None:
    authority = Authority()
    with TemporaryDirectory() as folder:
        pair = authority.issue_server("localhost", ["127.0.0.1"]).write(Path(folder), "server")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*pair)
    trust = ssl.create_default_context(cadata=authority.certificate.decode())
    async with Served(context) as served:
        silent = await connected(served.port, 2 * MAX_CONNECTIONS)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=trust)
            writer.write(REQUEST)
            async with asyncio.timeout(20):
                assert (await reader.read()).endswith(b"hello")
            assert served.refused > MAX_CONNECTIONS
            writer.close()
        finally:
            for _, each in silent:
                each.transport.abort()


async def test_an_incomplete_handshake_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "HANDSHAKE", 0.01)
    async with Served(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)) as served:
        [(reader, writer)] = await connected(served.port, 1)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_used_port_is_an_error(port: int) -> None:
    with pytest.raises(OSError, match="in use"):
        await listen("127.0.0.1", port)


async def test_a_disconnect_during_the_request_body_is_not_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise any client of the port could fill the log with stack traces."""
    async with Served() as served, asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
        await served.answering.wait()
        writer.transport.abort()
        await served.ended.wait()
    assert not caplog.records


async def test_an_exception_in_the_server_is_logged(port: int, caplog: pytest.LogCaptureFixture) -> None:
    assert b" 500 " in await said(port, REQUEST.replace(b"/ ", b"/?fault=1 "))
    assert "a fault of the server" in caplog.text
