"""The client aborts responses beyond a limit: complete, compressed and relayed bodies."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import orjson
import pytest
from aiohttp import web

from kube.errors import MAX_QUOTED, StatusError
from kube.http import client as client_module
from kube.http import gzip_bodies, zstd_bodies
from kube.http.client import Client, TooLarge
from tests.cloud.sessions import new_session
from tests.kube.support.serving import serving

type Serve = Callable[..., Awaitable[Client]]

LIMIT = 100_000
SHORT = 10_000


@pytest.fixture
async def serve(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    """Run a server that repeats a piece endlessly; return a client of it with low limits."""
    monkeypatch.setattr(client_module, "MAX_RESPONSE", LIMIT)
    monkeypatch.setattr(client_module, "MAX_RELAYED_BODY", LIMIT)
    monkeypatch.setattr(gzip_bodies, "MAX_UNPACKED", LIMIT)
    monkeypatch.setattr(gzip_bodies, "IN_LOOP_LIMIT", 1000)
    monkeypatch.setattr(client_module, "MAX_SHORT", SHORT)
    async with AsyncExitStack() as servers, new_session() as session:

        async def start(piece: bytes, encoding: str, status: int = 200) -> Client:
            async def handler(request: web.BaseRequest) -> web.StreamResponse:
                response = web.StreamResponse(
                    status=status, headers={"Content-Encoding": encoding} if encoding else {}
                )
                await response.prepare(request)
                with suppress(ConnectionError):
                    await response.write(piece)
                    while not encoding:
                        await response.write(piece)
                return response

            return Client(session, await servers.enter_async_context(serving(handler)), {})

        yield start


async def test_an_endless_body_is_aborted_at_the_limit(serve: Serve) -> None:
    client = await serve(b"x" * 10_000, "")
    with pytest.raises(TooLarge):
        await client.request("GET", "/x")


async def test_an_endless_relayed_body_is_aborted_at_the_limit(serve: Serve, reached: list[str]) -> None:
    client = await serve(b"x" * 10_000, "")
    with pytest.raises(TooLarge):
        await client.relay("GET", "/x", headers=(), body=b"")
    assert reached == ["relayed answer"]


@pytest.mark.parametrize("pack", [gzip.compress, lambda body: b"".join(zstd_bodies.pack([body], len(body)))])
async def test_a_body_beyond_the_decompressed_limit_is_aborted(
    serve: Serve, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(bytes(100 * LIMIT))
    client = await serve(packed, "gzip" if pack is gzip.compress else "zstd")
    answer = await client.request("GET", "/x")
    assert answer.body == packed
    with pytest.raises(TooLarge):
        await answer.decoded(len)


@pytest.mark.parametrize("size", [10, 1001, SHORT, SHORT + 1, LIMIT])
async def test_a_body_of_any_size_is_decoded(serve: Serve, size: int) -> None:
    client = await serve(gzip.compress(bytes(size)), "gzip")
    assert await (await client.request("GET", "/x")).decoded(len) == size


async def test_long_bodies_are_decompressed_and_decoded_one_at_a_time(serve: Serve) -> None:
    """Twelve decompressed lists that waited to be decoded once took 3 GB."""
    client = await serve(gzip.compress(bytes(LIMIT)), "gzip")
    answers = [await client.request("GET", "/x") for _ in range(4)]
    seat = threading.Lock()

    def decode(body: bytes) -> bool:
        if not seat.acquire(blocking=False):
            return False
        time.sleep(0.01)
        seat.release()
        return len(body) == LIMIT

    assert all(await asyncio.gather(*(each.decoded(decode) for each in answers)))


async def test_an_error_does_not_refer_to_its_long_body(serve: Serve) -> None:
    """A reflector stores its last error; those of four lists once took 2 GB."""
    client = await serve(gzip.compress(bytes(LIMIT)), "gzip")
    answer = await client.request("GET", "/x")
    with pytest.raises(ValueError, match="unexpected character") as caught:
        await answer.decoded(orjson.loads)
    assert type(caught.value) is ValueError
    assert caught.value.__cause__ is caught.value.__context__ is None
    frames = [frame for frame, _ in traceback.walk_tb(caught.tb)]
    assert not any(
        isinstance(value, bytes) and len(value) == LIMIT
        for each in frames
        for value in each.f_locals.values()
    )


@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_a_refusal_with_a_long_body_is_aborted(serve: Serve, coding: str) -> None:
    body = bytes(SHORT + 1)
    client = await serve(gzip.compress(body) if coding else body, coding, 500)
    with pytest.raises(TooLarge):
        await client.request("GET", "/x")


async def test_a_refusal_beyond_the_bound_is_identified_by_its_code(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_REFUSAL", SHORT // 2)
    body = b'{"kind":"Status","code":403,"message":"%s"}' % bytes(SHORT // 2).replace(b"\0", b"x")
    client = await serve(gzip.compress(body), "gzip", 403)
    with pytest.raises(StatusError) as caught:
        await client.request("GET", "/x")
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert len(caught.value.message) < 2 * MAX_QUOTED
