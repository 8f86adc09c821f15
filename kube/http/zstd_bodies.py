"""Packs and unpacks bodies in zstd, which hubs send each other. A kube-apiserver knows gzip alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import zstandard

from kube.differences.reader import UnusableRecord
from kube.differences.reader import unpack as unpack_frame
from kube.http.gzip_bodies import one_at_a_time
from kube.http.session import BodyTooLarge

LEVEL = 3
"""zstd's own default."""
IN_LOOP = 64 * 1024
"""Packed bytes up to which the event loop unpacks a body itself, if it is of UNPACKED_IN_LOOP at most: in some
milliseconds. A thread does the rest."""
UNPACKED_IN_LOOP = 1024 * 1024


def pack(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The pieces of a body of `size` bytes as one zstd frame, made as they are taken."""
    packer = zstandard.ZstdCompressor(LEVEL, write_checksum=True).compressobj(size=size)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


async def unpack(body: bytes, limit: int) -> bytes:
    """The unpacked body; BodyTooLarge beyond `limit` bytes, another OSError where it is damaged or cut off."""
    if len(body) <= IN_LOOP and _unpacked_size(body) <= UNPACKED_IN_LOOP:
        return unpack_up_to(body, limit)
    return await one_at_a_time(partial(unpack_up_to, body, limit))


def unpack_up_to(body: bytes, limit: int) -> bytes:
    """The same, at once."""
    if _unpacked_size(body) > limit:
        raise BodyTooLarge(f"a packed body is over the limit of {limit} bytes")
    try:
        return unpack_frame(body, limit=limit)
    except UnusableRecord as error:
        raise OSError(f"the packed body: {error}") from error


def _unpacked_size(body: bytes) -> int:
    """The unpacked size in a frame's header; 0 where it has none."""
    try:
        size: int = zstandard.get_frame_parameters(body).content_size
    except zstandard.ZstdError:
        return 0
    return size
