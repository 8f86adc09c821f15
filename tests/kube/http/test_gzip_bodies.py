"""gzip bodies and streams are decompressed completely up to a limit, however they are compressed and split."""

from __future__ import annotations

import asyncio
import gzip
import os
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from types import AsyncGeneratorType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.http.gzip_bodies import CHUNK, IN_LOOP_LIMIT, UNCOUNTED, unpack, unpack_stream, unpack_up_to
from kube.http.session import BodyTooLarge
from tests.support.cpu_time import own_seconds

MANY = 10**9


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.integers(0, 3))
def test_several_members_and_trailing_zeros_are_one_body(parts: list[bytes], zeros: int) -> None:
    packed = b"".join(gzip.compress(part) + bytes(zeros) for part in parts)
    assert unpack_up_to(packed, MANY) == b"".join(parts) == gzip.decompress(packed)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_the_decompressed_limit_is_exact(body: bytes, limit: int) -> None:
    packed = gzip.compress(body)
    if len(body) <= limit:
        assert unpack_up_to(packed, limit) == body
    else:
        with pytest.raises(BodyTooLarge):
            unpack_up_to(packed, limit)


@pytest.mark.parametrize(
    ("packed", "error"),
    [
        (b"", EOFError),
        (gzip.compress(b"body")[:-1], EOFError),
        (gzip.compress(b"one") + gzip.compress(b"two")[:5], EOFError),
        (b"no gzip", zlib.error),
        (gzip.compress(b"one") + b"rest", zlib.error),
    ],
)
async def test_an_incomplete_gzip_body_is_an_error(packed: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await unpack(packed, MANY)


@pytest.mark.parametrize(
    "size", [0, 10, IN_LOOP_LIMIT, IN_LOOP_LIMIT + 1, 3 * IN_LOOP_LIMIT, UNCOUNTED, UNCOUNTED + 1]
)
async def test_a_gzip_body_is_decompressed_completely_by_each_function(size: int) -> None:
    body = os.urandom(size // 2) + bytes(size - size // 2)
    assert await unpack(gzip.compress(body), MANY) == body


async def test_a_gzip_bomb_is_aborted_at_the_limit() -> None:
    """1 MB of gzip once decompressed to 4 GB."""
    bomb = gzip.compress(bytes(64 * CHUNK), 9)
    assert len(bomb) < CHUNK
    with pytest.raises(BodyTooLarge):
        await unpack(bomb, 4 * CHUNK)


BOMB = gzip.compress(bytes(48 * 1024 * 1024), 9)


@pytest.mark.parametrize("bomb", [BOMB, BOMB + gzip.compress(b"small")], ids=["one member", "whose end lies"])
def test_a_gzip_bomb_takes_little_memory_before_it_is_aborted(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            unpack_up_to(bomb, 32 * 1024 * 1024)
        assert tracemalloc.get_traced_memory()[1] < 1.25 * UNCOUNTED
    finally:
        tracemalloc.stop()


async def test_the_event_loop_runs_while_a_long_body_is_decompressed() -> None:
    iterations = 0

    async def count() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await unpack(gzip.compress(bytes(32 * CHUNK), 9), MANY)
    in_thread, iterations = iterations, 0
    async for _ in unpack_stream(chunks_of(gzip.compress(bytes(32 * CHUNK), 9))):
        pass
    counting.cancel()
    assert in_thread > 1
    assert iterations >= 16


def test_many_small_members_take_linear_time() -> None:
    """zlib copies the data after each member: 1 MB of empty members would copy 26 GB."""
    packed = gzip.compress(b"") * 50_000
    assert unpack_up_to(packed, MANY) == b""
    assert own_seconds(lambda: unpack_up_to(packed, MANY)) < 5


async def chunks_of(packed: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(packed), size):
        yield packed[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_stream_returns_all_available_data_at_once(size: int) -> None:
    """Otherwise an event buffered by zlib would be returned only with the next one."""
    parts = [b"one", bytes(2 * CHUNK + 5), b"", os.urandom(300)]
    packed = b"".join(gzip.compress(part) for part in parts)
    got = [piece async for piece in unpack_stream(chunks_of(packed, size))]
    assert b"".join(got) == b"".join(parts)
    assert max(map(len, got)) <= CHUNK


async def test_a_waiting_stream_retains_no_sent_data() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield gzip.compress(b"event")
        await asyncio.Future()

    stream = unpack_stream(chunks())
    assert await anext(stream) == b"event"
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert isinstance(stream, AsyncGeneratorType)
    assert stream.ag_frame is not None
    assert {"piece", "chunk"}.isdisjoint(stream.ag_frame.f_locals)
    waiting.cancel()
