"""Unpacks gzip bodies up to a limit: a response of 1 MB may unpack to 1 GB."""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kube.http.session import BodyTooLarge

MAX_UNPACKED = 256 * 1024 * 1024
"""Bytes of an unpacked body: a list of 50,000 objects of 5 KB, which has no pages only where its pages expired."""
IN_LOOP = 256 * 1024
"""Bytes up to which the event loop unpacks a body itself, in about a millisecond. A thread does the rest."""
UNCOUNTED = 4 * 1024 * 1024
"""The largest limit, in bytes, under which a body is unpacked without counting its size first."""
PIECE = 64 * 1024
"""Bytes that are unpacked at once, of a stream before other tasks run again. As events they cost some milliseconds."""
STEP = 16 * 1024
"""Packed bytes handed to zlib at once. At each member's end zlib copies the rest of them."""

_GZIP = 16 + zlib.MAX_WBITS
_unpacker = ThreadPoolExecutor(1, "unpacker")


async def one_at_a_time[T](unpack_long: Callable[[], T]) -> T:
    """Run work on a long body in a thread, one at a time: six bodies of some hundred KB unpacked to 2.5 GB at once."""
    return await asyncio.get_running_loop().run_in_executor(_unpacker, unpack_long)


async def unpack(packed: bytes, limit: int) -> bytes:
    """The unpacked body, of one gzip member or several; errors as `unpack_up_to`."""
    if len(packed) <= IN_LOOP:
        try:
            return unpack_up_to(packed, min(limit, IN_LOOP))
        except BodyTooLarge:
            pass  # longer than the loop can wait for
    return await one_at_a_time(partial(unpack_up_to, packed, limit))


def unpack_up_to(packed: bytes, limit: int) -> bytes:
    """The unpacked body. BodyTooLarge beyond `limit` bytes, EOFError where it is cut off, zlib.error for other data.

    A long body is unpacked twice, first only to count its size: a body of 0.8 MB took 288 MB before it was too large.
    """
    if limit > UNCOUNTED:
        for _ in _pieces(packed, limit):
            pass
    # The buffer grows in place: joining pieces would double the memory. `with` frees it, even where a kept error
    # (`kube.reflector.reflector.Reflector.error`) holds this frame.
    with io.BytesIO() as unpacked:
        for piece in _pieces(packed, limit):
            unpacked.write(piece)
        return unpacked.getvalue()


def _pieces(packed: bytes, limit: int) -> Iterator[bytes]:
    """The unpacked body in pieces of at most PIECE bytes; errors as above, as soon as they are found."""
    size = 0
    member, begun = zlib.decompressobj(_GZIP), False
    for start in range(0, len(packed), STEP):
        rest, is_full = packed[start : start + STEP], False
        while rest or is_full:
            if not begun and not (rest := rest.lstrip(b"\0")):
                break  # gzip allows zeros behind a member
            piece = member.decompress(rest, PIECE)
            size += len(piece)
            if size > limit:
                raise BodyTooLarge(f"a packed body is over the limit of {limit} bytes")
            yield piece
            rest, begun = member.unused_data or member.unconsumed_tail, not member.eof
            is_full = begun and len(piece) == PIECE  # zlib may hold back more
            if member.eof:
                member = zlib.decompressobj(_GZIP)
    if begun or not packed:
        raise EOFError("the packed body ends early")


async def unpack_stream(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """An unpacked watch, in pieces of PIECE bytes at most. Since Kubernetes 1.37 each flush is a gzip member."""
    member, at_once = zlib.decompressobj(_GZIP), 0
    async for chunk in chunks:
        for start in range(0, len(chunk), STEP):
            rest, is_full = chunk[start : start + STEP], False
            while rest or is_full:
                piece = member.decompress(rest, PIECE)
                size = len(piece)
                if piece:
                    yield piece
                del piece  # as the chunk below
                is_full = size == PIECE  # zlib may hold back more
                at_once += size
                if at_once >= PIECE:
                    at_once = 0
                    await asyncio.sleep(0)
                rest = member.unused_data or member.unconsumed_tail
                if member.eof:
                    member, is_full = zlib.decompressobj(_GZIP), False
        del chunk  # The next one may come in an hour.
