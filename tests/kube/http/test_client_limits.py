"""The client drops answers without end at a limit: whole bodies, packed and relayed ones."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from kube import bounds
from kube.http import client as client_module
from kube.http import gzip_bodies
from kube.http.client import Client, TooLarge
from tests.cloud.sessions import new_session

type Serve = Callable[[bytes, str], Awaitable[Client]]

LIMIT = 100_000


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """A server that sends a piece again and again, and a client of it with small limits."""
    monkeypatch.setattr(client_module, "MAX_BODY", LIMIT)
    monkeypatch.setattr(client_module, "MAX_RELAYED_BODY", LIMIT)
    monkeypatch.setattr(gzip_bodies, "MAX_UNPACKED", LIMIT)
    monkeypatch.setattr(gzip_bodies, "IN_LOOP", 1000)
    session = new_session()
    runners: list[web.ServerRunner] = []

    async def start(piece: bytes, encoding: str) -> Client:
        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Encoding": encoding} if encoding else {})
            await response.prepare(request)
            try:
                while True:
                    await response.write(piece)
                    if encoding:
                        return response
            except ConnectionError:
                return response

        runner = web.ServerRunner(web.Server(handler))
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        return Client(session, f"http://{host}:{port}", {})

    yield start
    await session.close()
    for runner in runners:
        await runner.cleanup()


async def test_an_endless_body_is_dropped(serve: Serve) -> None:
    client = await serve(b"x" * 10_000, "")
    with pytest.raises(TooLarge):
        await client.request("GET", "/x")


async def test_an_endless_relayed_body_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await serve(b"x" * 10_000, "")
    told: list[str] = []
    monkeypatch.setattr(bounds, "_listeners", [told.append])
    with pytest.raises(TooLarge):
        await client.relay("GET", "/x", headers=(), body=b"")
    assert told == ["relayed answer"]


async def test_a_body_that_unpacks_to_too_much_is_dropped(serve: Serve) -> None:
    client = await serve(gzip.compress(bytes(100 * LIMIT), 9), "gzip")
    with pytest.raises(TooLarge):
        await client.request("GET", "/x")
