"""Decompresses gzip bodies up to a limit, because a response of 1 MB may decompress to 1 GB."""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kube.http.session import BodyTooLarge

MAX_UNPACKED = 256 * 1024 * 1024
"""The most bytes of a decompressed body: a list of 50,000 objects of 5 KB, unpaged only if its pages expired."""
IN_LOOP_LIMIT = 256 * 1024
"""The most bytes of a body that the event loop decompresses itself, in about a millisecond. A thread does longer
ones."""
UNCOUNTED = 8 * 1024 * 1024
"""Bytes up to which a body is decompressed without counting its size first."""
CHUNK = 64 * 1024
"""Bytes that are decompressed at once; in a stream, other tasks run between pieces. The events in a piece cost a few
milliseconds."""
STEP = 16 * 1024
"""Compressed bytes handed to zlib at once. zlib copies the unread rest at the end of each gzip member."""

_GZIP = 16 + zlib.MAX_WBITS
_unpacker = ThreadPoolExecutor(1, "unpacker")


async def one_at_a_time[T](unpack_long: Callable[[], T]) -> T:
    """Run work on a long body in a thread, one body at a time: six bodies of some hundred KB once decompressed to 2.5
    GB."""
    return await asyncio.get_running_loop().run_in_executor(_unpacker, unpack_long)


async def unpack(packed: bytes, limit: int) -> bytes:
    """Decompress a body of one or more gzip members. Raises as `unpack_up_to`."""
    if len(packed) <= IN_LOOP_LIMIT:
        try:
            return unpack_up_to(packed, min(limit, IN_LOOP_LIMIT))
        except BodyTooLarge:
            pass  # longer than the loop can wait for
    return await one_at_a_time(partial(unpack_up_to, packed, limit))


def unpack_up_to(packed: bytes, limit: int) -> bytes:
    """Decompress a body. BodyTooLarge beyond `limit` bytes, EOFError if truncated, zlib.error for other data.

    A body over UNCOUNTED bytes is decompressed again, first only to count its size: a body of 0.8 MB took 288 MB
    before it exceeded the limit.
    """
    try:
        return _joined(packed, min(limit, UNCOUNTED))
    except BodyTooLarge:
        if limit <= UNCOUNTED:
            raise
    for _ in _pieces(packed, limit):
        pass
    return _joined(packed, limit)


def _joined(packed: bytes, limit: int) -> bytes:
    # The buffer grows in place: joining pieces would double the memory. `with` frees it, even where a kept error
    # (`kube.reflector.reflector.Reflector.error`) holds this frame.
    with io.BytesIO() as unpacked:
        for piece in _pieces(packed, limit):
            unpacked.write(piece)
        return unpacked.getvalue()


def _pieces(packed: bytes, limit: int) -> Iterator[bytes]:
    """Yield the decompressed body in pieces of at most CHUNK bytes. Raises as `unpack_up_to`, at the first faulty
    byte."""
    size = 0
    member, begun = zlib.decompressobj(_GZIP), False
    for start in range(0, len(packed), STEP):
        rest, is_full = packed[start : start + STEP], False
        while rest or is_full:
            if not begun and not (rest := rest.lstrip(b"\0")):
                break  # gzip allows zeros after a member
            piece = member.decompress(rest, CHUNK)
            size += len(piece)
            if size > limit:
                raise BodyTooLarge(f"a packed body is over the limit of {limit} bytes")
            yield piece
            rest, begun = member.unused_data or member.unconsumed_tail, not member.eof
            is_full = begun and len(piece) == CHUNK  # zlib may have more output
            if member.eof:
                member = zlib.decompressobj(_GZIP)
    if begun or not packed:
        raise EOFError("the packed body ends early")


async def unpack_stream(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Decompress a watch in pieces of at most CHUNK bytes. Since Kubernetes 1.37, each flush is its own gzip
    member."""
    member, at_once = zlib.decompressobj(_GZIP), 0
    async for chunk in chunks:
        for start in range(0, len(chunk), STEP):
            rest, is_full = chunk[start : start + STEP], False
            while rest or is_full:
                piece = member.decompress(rest, CHUNK)
                size = len(piece)
                if piece:
                    yield piece
                del piece  # free it before the next chunk, which may come in an hour
                is_full = size == CHUNK  # zlib may have more output
                at_once += size
                if at_once >= CHUNK:
                    at_once = 0
                    await asyncio.sleep(0)
                rest = member.unused_data or member.unconsumed_tail
                if member.eof:
                    member, is_full = zlib.decompressobj(_GZIP), False
        del chunk  # The next chunk may come in an hour.
