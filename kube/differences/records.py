"""A watch encoded as differences: each event is a zstd frame whose prefix is the object that the receiver holds.

Objects change little from event to event: with an EndpointSlice's previous version as the dictionary, 50,000 bytes
shrink to about 200. A watch sends the changes of an object in order, so the writer knows which version each
receiver holds. One record therefore serves all receivers, and the writer needs no state for each.

A stream is a sequence of records. A record is the size of its content (four bytes, big-endian), its kind (one
byte) and the content, which decompresses to one or more complete frames of an ordinary watch. A zstd frame carries
the size and a checksum of its decompressed data; `kube.differences.reader` checks both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import zstandard

from kube.wire.codec_base import CHUNK, MAX_FRAME, in_pieces

CODING = "x-edgehub-differences"
"""The name of the coding in Accept-Encoding and Content-Encoding. A server that does not support it sends plain
frames."""
LEVEL = 1
"""The zstd compression level. Higher levels do not shrink a difference, which is nearly all one reference to the
prefix."""
MAX_UNPACKED_RECORD = MAX_FRAME + CHUNK
"""The most bytes that a record may decompress to: a piece of an initial state ends with the event that fills
it."""
MAX_RECORD = MAX_UNPACKED_RECORD + 64 * 1024
"""The most bytes of a record. Incompressible data grows a little."""


class Kind(IntEnum):
    """The encoding of a record's content."""

    PLAIN = 0
    """Not compressed: used for bookmarks, which are short."""
    PACKED = 1
    """A zstd frame without a prefix."""
    CHAINED = 2
    """A zstd frame whose prefix is the previous record's content: the next piece of an initial state."""
    DIFFERENCE = 3
    """PREFIX, namespace and name of an object, then a zstd frame whose prefix is that object's encoded bytes."""


class Former(NamedTuple):
    """The object version that an event's receiver holds. `raw` is the object as the store encodes it."""

    namespace: str
    name: str
    version: int
    raw: bytes


HEAD = struct.Struct(">IB")
"""The head of a record: size of the content, kind."""
PREFIX = struct.Struct(">QBB")
"""The head of a difference: version of the previous object, and the lengths of its namespace and name in bytes."""
LONGEST_NAME = 255


def are_accepted(codings: str) -> bool:
    """True if an Accept-Encoding header names this coding. Such a client is a hub, and also accepts lists in
    zstd."""
    return CODING in {coding.strip() for coding in codings.split(",")}


def plain_record(frames: bytes) -> bytes:
    """Encode complete frames as an uncompressed record."""
    return _record(Kind.PLAIN, frames)


def event_record(frame: bytes, former: Former | None) -> bytes:
    """Encode one watch event as a difference to `former`, the object that the receiver holds; None if it holds
    none."""
    if former is None:
        return _record(Kind.PACKED, pack(frame))
    namespace, name = former.namespace.encode(), former.name.encode()
    if max(len(namespace), len(name)) > LONGEST_NAME or former.version < 0:
        return _record(Kind.PACKED, pack(frame))
    prefix = PREFIX.pack(former.version, len(namespace), len(name)) + namespace + name
    return _record(Kind.DIFFERENCE, prefix + pack(frame, former.raw))


def state_records(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames of an initial state as records of CHUNK bytes before compression. Records are made
    lazily."""
    before = b""
    for piece in in_pieces(frames):
        content = b"".join(piece)
        yield _record(Kind.CHAINED if before else Kind.PACKED, pack(content, before))
        before = content


def pack(content: bytes, prefix: bytes = b"") -> bytes:
    """Compress into a zstd frame with size and checksum. The receiver needs the same prefix; b"" for none."""
    return zstandard.ZstdCompressor(LEVEL, dictionary(prefix), write_checksum=True).compress(content)


def dictionary(prefix: bytes) -> zstandard.ZstdCompressionDict | None:
    """A prefix as a zstd dictionary. The type marks it as raw content, so that zstd does not parse it."""
    return zstandard.ZstdCompressionDict(prefix, zstandard.DICT_TYPE_RAWCONTENT) if prefix else None


def _record(kind: Kind, content: bytes) -> bytes:
    return HEAD.pack(len(content), kind) + content
