"""The server of the admin port with clients that stay, disconnect, or request unknown pages."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Self

import pytest

from addons.telemetry import metrics
from addons.ui import admin_server
from addons.ui.admin_server import MAX_CONNECTIONS, AdminServer
from addons.ui.handlers import (
    AdminHub,
    AdminPage,
    AdminRequest,
    AdminResponse,
    ReportQueue,
    Streamed,
    text_answer,
)
from addons.ui.running_hub import RunningHub
from kube.errors import too_many_requests
from tests.addons.support.observed import until, value_of
from tests.support.raw_connections import connected, said

LONG = "x" * 3_000_000
LIMIT = 100


class Served:
    """A server with the test's own pages, without mitmproxy: calling a hook would raise."""

    def __init__(self, hub: RunningHub) -> None:
        self.answering = asyncio.Event()
        self.go_on = asyncio.Event()
        self.read: list[bytes] = []
        self.ended = 0
        self.closed = asyncio.Event()
        pages: dict[str, dict[str, AdminPage]] = {
            "/": {"GET": self._hello},
            "/waits": {"GET": self._wait},
            "/body": {"GET": self._hello, "POST": self._body},
            "/refused": {"GET": self._refused},
            "/stream": {"GET": self._stream},
        }
        routes = {re.compile(re.escape(path)): methods for path, methods in pages.items()}
        self.server = AdminServer(AdminHub(hub, ReportQueue(), self.closed), routes)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    async def __aenter__(self) -> Self:
        await self.server.start(self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await until(lambda: not self.server._open())

    async def _hello(self, request: AdminRequest) -> AdminResponse:
        if "fault" in request.query:
            raise ValueError("a fault of the page")
        return text_answer(LONG if "long" in request.query else "hello")

    async def _wait(self, _request: AdminRequest) -> AdminResponse:
        self.answering.set()
        await self.go_on.wait()
        return text_answer("at last")

    async def _body(self, request: AdminRequest) -> AdminResponse:
        self.answering.set()
        try:
            self.read.append(await request.read(LIMIT))
        finally:
            self.ended += 1
        return text_answer("read")

    async def _refused(self, _request: AdminRequest) -> AdminResponse:
        raise too_many_requests("no", retry_after=7)

    async def _stream(self, request: AdminRequest) -> AdminResponse:
        return Streamed(self._pieces(int(request.query["pieces"])), {"Content-Type": "text/plain"})

    async def _pieces(self, count: int) -> AsyncGenerator[bytes]:
        try:
            if not count:
                raise too_many_requests("no stream", retry_after=7)
            for _ in range(count):
                yield b"piece"
            await self.closed.wait()
            yield b"last"
            yield b"never"
        finally:
            self.ended += 1


@pytest.fixture
async def served(hub: RunningHub) -> AsyncIterator[Served]:
    async with Served(hub) as made:
        yield made


def request(path: str = "/", method: str = "GET", *fields: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


CLOSE = "Connection: close"


async def test_pipelined_requests_are_answered_in_order_on_one_connection(served: Served) -> None:
    answer = await said(served.port, request() + request("/?long=1") + request("/", "GET", CLOSE))
    first, long, last = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"\r\n\r\nhello")
    assert last.endswith(b"\r\n\r\nhello")
    assert long.endswith(b"x" * len(LONG)), "to its end, whatever the socket takes at once"
    date = re.search(rb"\r\nDate: ([^\r]*)\r\n", b"\r\n" + first)
    assert date is not None
    assert parsedate_to_datetime(date[1].decode()).utcoffset() is not None


@pytest.mark.parametrize(
    ("asked", "starts", "ends"),
    [
        (request("/none", "GET", CLOSE), b"HTTP/1.1 404 Not Found", b"404: Not Found"),
        (request("/body", "PUT", CLOSE), b"HTTP/1.1 405 Method Not Allowed", b"405: Method Not Allowed"),
        (request("/", "HEAD", CLOSE), b"HTTP/1.1 200 OK", b"\r\n\r\n"),
        (request("/", "GET", CLOSE).replace(b"localhost", b"evil"), b"HTTP/1.1 403 Forbidden", b"}"),
        (request("http://evil/", "GET", CLOSE), b"HTTP/1.1 403 Forbidden", b"}"),
        (request("http://localhost/", "GET", CLOSE), b"HTTP/1.1 200 OK", b"hello"),
        (request("/", "GET", CLOSE, "Origin: http://evil"), b"HTTP/1.1 403 Forbidden", b"}"),
        (request("/refused", "GET", CLOSE), b"HTTP/1.1 429 Too Many Requests", b"}"),
        (request("/stream?pieces=0", "GET", CLOSE), b"HTTP/1.1 429 Too Many Requests", b"}"),
        (request("/stream?pieces=2", "HEAD", CLOSE), b"HTTP/1.1 200 OK", b"\r\n\r\n"),
        (request("/" + "a" * 9000, "GET", CLOSE), b"HTTP/1.1 414 ", b"}"),
        (request("/", "GET", CLOSE, *[f"A: {n}" for n in range(1001)]), b"HTTP/1.1 431 ", b"}"),
        (request("/", "GET", CLOSE, f"A: {'a' * 80_000}"), b"HTTP/1.1 431 ", b"}"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/1.1 505 ", b"}"),
        (b"nothing\r\n\r\n", b"HTTP/1.1 400 ", b"}"),
    ],
)
async def test_the_admin_server_answers_valid_and_invalid_requests(
    served: Served, asked: bytes, starts: bytes, ends: bytes
) -> None:
    answer = await said(served.port, asked)
    assert answer.startswith(starts)
    assert answer.endswith((ends, ends + b"\n"))
    if starts.startswith(b"HTTP/1.1 429"):
        assert b"\r\nRetry-After: 7\r\n" in answer
    if starts.startswith(b"HTTP/1.1 405"):
        assert b"\r\nAllow: GET,HEAD,POST\r\n" in answer


async def test_a_body_is_read_up_to_its_limit(served: Served) -> None:
    complete = request("/body", "POST", CLOSE, f"Content-Length: {LIMIT}", body=b"b" * LIMIT)
    assert (await said(served.port, complete)).startswith(b"HTTP/1.1 200 ")
    assert served.read == [b"b" * LIMIT]
    asked = request("/body", "POST", "Expect: 100-continue", f"Content-Length: {LIMIT + 1}")
    answer = await said(served.port, asked + b"b" * (LIMIT + 1) + request("/", "GET", CLOSE))
    assert b"HTTP/1.1 413 " in answer


async def test_refusing_an_unread_body_closes_the_connection(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request("/none", "POST", "Content-Length: 10", body=b"b"))
    async with asyncio.timeout(20):
        assert b"\r\nConnection: close\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"b" * 9 + request())
        assert await reader.read() == b"404: Not Found"
    writer.close()


async def test_a_stream_ends_with_the_hub(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request("/stream?pieces=2", "GET", CLOSE))
    async with asyncio.timeout(20):
        assert b"\r\nCache-Control: no-store\r\n" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(20) == b"5\r\npiece\r\n" * 2
        served.server.close()
        assert await reader.read() == b"4\r\nlast\r\n0\r\n\r\n"
    writer.close()
    assert served.ended == 1


async def test_a_disconnected_client_ends_its_stream(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request("/stream?pieces=1"))
    await reader.readuntil(b"piece")
    writer.transport.abort()
    await until(lambda: served.ended)
    assert caplog.text == ""


async def test_a_disconnect_during_the_request_body_is_not_logged_as_an_error(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(request("/body", "POST", "Content-Length: 9", body=b"b"))
    await served.answering.wait()
    writer.transport.abort()
    await until(lambda: served.ended)
    assert caplog.text == ""


async def test_an_exception_in_a_page_is_logged(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    assert (await said(served.port, request("/?fault=1", "GET", CLOSE))).startswith(b"HTTP/1.1 500 ")
    assert "a fault of the page" in caplog.text


async def test_beyond_the_bound_the_longest_idle_connection_is_closed(served: Served) -> None:
    before = value_of(metrics.CONNECTIONS_REFUSED.labels("admin"))
    idle = await connected(served.port, MAX_CONNECTIONS)
    try:
        assert (await said(served.port, request("/", "GET", CLOSE))).endswith(b"hello")
        async with asyncio.timeout(20):
            assert await idle[0][0].read() == b""
        assert value_of(metrics.CONNECTIONS_REFUSED.labels("admin")) == before + 1
        idle[1][1].write(request("/", "GET", CLOSE))
        async with asyncio.timeout(20):
            assert (await idle[1][0].read()).endswith(b"hello")
    finally:
        for _, writer in idle:
            writer.transport.abort()


async def test_a_connection_with_a_running_request_is_not_closed(served: Served) -> None:
    long = asyncio.create_task(said(served.port, request("/waits", "GET", CLOSE)))
    await served.answering.wait()
    idle = await connected(served.port, MAX_CONNECTIONS + 2)
    try:
        assert (await said(served.port, request("/", "GET", CLOSE))).endswith(b"hello")
        served.go_on.set()
        assert (await long).endswith(b"at last")
    finally:
        for _, writer in idle:
            writer.transport.abort()


@pytest.mark.parametrize("begun", [b"", request(), b"GET / HTTP/1.1\r\nHost: loc"])
async def test_a_connection_without_a_request_is_closed(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(admin_server, "SWEEP", 0.01)
    async with Served(hub) as served:
        answering = asyncio.create_task(said(served.port, request("/waits", "GET", CLOSE)))
        await served.answering.wait()
        monkeypatch.setattr(admin_server, "KEEP_ALIVE", 0.0)
        answer = await said(served.port, begun)
        assert answer.endswith(b"hello") if begun == request() else answer == b""
        served.go_on.set()
        assert (await answering).endswith(b"at last")
