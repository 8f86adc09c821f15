"""zstd bodies are decompressed completely up to a limit, or refused."""

from __future__ import annotations

import random
import threading

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kube.http import zstd_bodies
from kube.http.session import BodyTooLarge
from kube.http.zstd_bodies import pack, unpack

BODY = random.Random(1).randbytes(1000) + bytes(
    1_000_000
)  # the same in each process: tests have its length in their names
PACKED = b"".join(pack([BODY[:500], BODY[500:]], len(BODY)))

_packer = zstandard.ZstdCompressor().compressobj()
UNSIZED = _packer.compress(BODY) + _packer.flush()


@given(st.lists(st.binary(max_size=200), max_size=5))
async def test_a_zstd_body_in_any_pieces_is_decompressed_unchanged(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    assert await unpack(b"".join(pack(pieces, len(body))), len(body)) == body


@pytest.mark.parametrize(("packed", "unpacked"), [(10, len(BODY)), (len(PACKED), len(BODY) - 1)])
async def test_long_zstd_bodies_are_decompressed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, packed: int, unpacked: int
) -> None:
    """64 KiB may decompress to 256 MiB."""
    monkeypatch.setattr(zstd_bodies, "IN_LOOP_LIMIT", packed)
    monkeypatch.setattr(zstd_bodies, "UNPACKED_IN_LOOP", unpacked)
    threads: list[int] = []

    def note(body: bytes, _limit: int) -> bytes:
        threads.append(threading.get_ident())
        return body

    monkeypatch.setattr(zstd_bodies, "unpack_up_to", note)
    assert await unpack(PACKED, len(BODY)) == PACKED
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


@pytest.mark.parametrize("end", [0, 3, 20, 500, -1])
async def test_a_truncated_zstd_body_is_an_error(end: int) -> None:
    with pytest.raises(OSError, match="packed body"):
        await unpack(PACKED[:end], len(BODY))


@pytest.mark.parametrize(
    "body",
    [PACKED + b"x", PACKED[:100] + b"\0" + PACKED[101:], UNSIZED, BODY],
    ids=["more behind it", "damaged", "of no stated size", "not packed"],
)
async def test_a_malformed_zstd_body_is_an_error(body: bytes) -> None:
    with pytest.raises(OSError, match="packed body"):
        await unpack(body, len(BODY))


async def test_a_zstd_body_over_the_limit_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        await unpack(PACKED, len(BODY) - 1)
    assert await unpack(PACKED, len(BODY)) == BODY
