"""Guarantees of a session to its client, with each version of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from kube.http.session import Session
from kube.http.transport.http1_connection import Http1Connection
from tests.cloud.sessions import new_session
from tests.kube.support.cleartext import CleartextSession
from tests.kube.support.http2_peer import Asked, Peer
from tests.kube.support.serving import serving

LATER = 10.0
"""Seconds, more than any of these tests takes."""
LIMIT = 2**20
"""Bytes, more than any of these bodies has."""


@asynccontextmanager
async def own_http1() -> AsyncIterator[tuple[Session, str]]:
    async with http1() as (_, url):
        session = CleartextSession(Http1Connection)
        yield session, url
        session.close()


@asynccontextmanager
async def http1() -> AsyncIterator[tuple[Session, str]]:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/silent":
            await asyncio.Event().wait()
        response = web.StreamResponse(status=201, headers=[("X-Twice", "1"), ("X-Twice", "2")])
        await response.prepare(request)
        await response.write(await request.read())
        if request.path == "/half":
            assert request.transport is not None
            request.transport.close()
        return response

    async with serving(handler) as url, new_session() as session:
        yield session, url


@asynccontextmanager
async def http2() -> AsyncIterator[tuple[Session, str]]:
    def act(asked: Asked) -> None:
        path = asked.fields[":path"]
        if path == "/silent":
            return
        asked.head(201, ("x-twice", "1"), ("x-twice", "2"))
        asked.data(asked.body, end=path != "/half")
        if path == "/half":
            asked.break_off()

    peer, session = Peer(act), CleartextSession()
    async with peer.serve():
        yield session, peer.url
        session.close()


@pytest.fixture(params=[http1, own_http1, http2])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Session, str]]:
    async with request.param() as made:
        yield made


type Served = tuple[Session, str]


async def test_a_response_has_status_headers_and_body(served: Served) -> None:
    session, url = served
    asked = session.open("POST", f"{url}/", headers=[("X-Own", "1")], body=b"echo", timeout=LATER)
    async with asked as response:
        assert response.status == 201
        assert response.headers["X-TWICE"] == "1"
        assert [value for name, value in response.headers.items() if name.lower() == "x-twice"] == ["1", "2"]
        assert await response.read(LIMIT) == b"echo"


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_truncated_response_is_an_oserror(served: Served, in_pieces: bool) -> None:
    session, url = served

    async def ask() -> None:
        async with session.open("POST", f"{url}/half", headers=(), body=b"half", timeout=LATER) as response:
            if not in_pieces:
                await response.read(LIMIT)
            async for _ in response.chunks():
                pass

    with pytest.raises(OSError):  # noqa: PT011 - whichever the version has for it
        await ask()


async def test_a_missing_response_times_out(served: Served) -> None:
    session, url = served
    with pytest.raises(TimeoutError):
        async with session.open("GET", f"{url}/silent", headers=(), body=None, timeout=0.05):
            pass


async def test_a_port_without_a_listener_is_an_oserror(served: Served) -> None:
    session, _ = served
    with pytest.raises(OSError, match="onnect"):
        async with session.open("GET", "http://127.0.0.1:1/", headers=(), body=None, timeout=LATER):
            pass


async def test_the_managers_session_adds_nothing_to_a_request() -> None:
    @asynccontextmanager
    async def saying(answer: bytes, asked: list[bytes]) -> AsyncIterator[str]:
        """Return the URL of a server that sends this response once, and records the requests."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

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
