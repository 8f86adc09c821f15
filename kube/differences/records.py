"""A watch written as differences: each event as a zstd frame whose prefix is the object that the receiver holds.

Objects change little from event to event: the former version of an EndpointSlice, as a dictionary, makes some 200
bytes of 50,000. The writer knows which version a receiver holds, because a watch sends the changes of an object in
order. So one record serves all receivers, and the writer keeps no state of any of them.

A stream is a sequence of records. A record is the size of its content (four bytes, big-endian), its kind (one byte)
and the content; what the content unpacks to is one or more whole frames of an ordinary watch. A zstd frame carries
the size of what it unpacks to, and a checksum of it. `kube.differences.reader` checks both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import zstandard

from kube.wire.codec_base import MAX_FRAME, PIECE, in_pieces

CODING = "x-edgehub-differences"
"""The name in Accept-Encoding and Content-Encoding. A server that does not know it sends plain frames."""
LEVEL = 1
"""zstd's. A higher level makes a difference no smaller, because nearly all of it is one reference to the prefix."""
MAX_UNPACKED_RECORD = MAX_FRAME + PIECE
"""Bytes that a record may unpack to: a piece of a state ends with the event that fills it."""
MAX_RECORD = MAX_UNPACKED_RECORD + 64 * 1024
"""Bytes of a record. Incompressible data becomes a little longer."""


class Kind(IntEnum):
    """How the content of a record was written."""

    PLAIN = 0
    """Not packed: a bookmark is too short."""
    PACKED = 1
    """A zstd frame without a prefix."""
    CHAINED = 2
    """A zstd frame with the content of the record before it as its prefix: the next piece of a state."""
    DIFFERENCE = 3
    """PREFIX, namespace and name of an object, and a zstd frame with that object's raw form as its prefix."""


class Former(NamedTuple):
    """The version of an object that the receiver of an event holds. `raw` is as a store keeps it."""

    namespace: str
    name: str
    version: int
    raw: bytes


HEAD = struct.Struct(">IB")
"""Size of the content, and kind."""
PREFIX = struct.Struct(">QBB")
"""Version of the former object, and the lengths of its namespace and name in bytes."""
LONGEST_NAME = 255


def are_accepted(codings: str) -> bool:
    """Whether an Accept-Encoding header names the coding. Such a client is a hub, and takes lists in zstd, too."""
    return CODING in {coding.strip() for coding in codings.split(",")}


def plain_record(frames: bytes) -> bytes:
    """Complete frames, unpacked."""
    return _record(Kind.PLAIN, frames)


def event_record(frame: bytes, former: Former | None) -> bytes:
    """One frame of a watch, as a difference to the object that the receiver holds; None where it holds none."""
    if former is None:
        return _record(Kind.PACKED, pack(frame))
    namespace, name = former.namespace.encode(), former.name.encode()
    if max(len(namespace), len(name)) > LONGEST_NAME or former.version < 0:
        return _record(Kind.PACKED, pack(frame))
    prefix = PREFIX.pack(former.version, len(namespace), len(name)) + namespace + name
    return _record(Kind.DIFFERENCE, prefix + pack(frame, former.raw))


def state_records(frames: Iterable[bytes]) -> Iterator[bytes]:
    """The frames of a whole state, in records of PIECE bytes before packing. Each is made as it is taken."""
    before = b""
    for piece in in_pieces(frames):
        content = b"".join(piece)
        yield _record(Kind.CHAINED if before else Kind.PACKED, pack(content, before))
        before = content


def pack(content: bytes, prefix: bytes = b"") -> bytes:
    """A zstd frame with its size and checksum. Both sides must have the same prefix, "" for none."""
    return zstandard.ZstdCompressor(LEVEL, dictionary(prefix), write_checksum=True).compress(content)


def dictionary(prefix: bytes) -> zstandard.ZstdCompressionDict | None:
    """A prefix for zstd. The type marks it as raw content: a dictionary of zstd's own would be parsed."""
    return zstandard.ZstdCompressionDict(prefix, zstandard.DICT_TYPE_RAWCONTENT) if prefix else None


def _record(kind: Kind, content: bytes) -> bytes:
    return HEAD.pack(len(content), kind) + content
