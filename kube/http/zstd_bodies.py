"""Compresses and decompresses bodies with zstd, between hubs. kube-apiserver supports only gzip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import zstandard

from kube.differences.reader import UnusableRecord
from kube.differences.reader import unpack as unpack_frame
from kube.http.gzip_bodies import one_at_a_time
from kube.http.session import BodyTooLarge

LEVEL = 3
"""zstd's default level."""
IN_LOOP_LIMIT = 64 * 1024
"""Compressed bytes up to which the event loop decompresses a body itself, if the result has at most UNPACKED_IN_LOOP:
a few milliseconds. A thread does longer ones."""
UNPACKED_IN_LOOP = 1024 * 1024


def pack(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Compress the pieces of a body of `size` bytes to one zstd frame, lazily."""
    packer = zstandard.ZstdCompressor(LEVEL, write_checksum=True).compressobj(size=size)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


async def unpack(body: bytes, limit: int) -> bytes:
    """Decompress a body. BodyTooLarge beyond `limit` bytes, another OSError if it is damaged or truncated."""
    if len(body) <= IN_LOOP_LIMIT and _unpacked_size(body) <= UNPACKED_IN_LOOP:
        return unpack_up_to(body, limit)
    return await one_at_a_time(partial(unpack_up_to, body, limit))


def unpack_up_to(body: bytes, limit: int) -> bytes:
    """Decompress a body as `unpack` does, in the calling thread."""
    if _unpacked_size(body) > limit:
        raise BodyTooLarge(f"a packed body is over the limit of {limit} bytes")
    try:
        return unpack_frame(body, limit=limit)
    except UnusableRecord as error:
        raise OSError(f"the packed body: {error}") from error


def _unpacked_size(body: bytes) -> int:
    """The decompressed size in a frame's header; 0 if the header has none."""
    try:
        size: int = zstandard.get_frame_parameters(body).content_size
    except zstandard.ZstdError:
        return 0
    return size
