"""A record that is damaged, oversized or for another version ends the stream with an UnusableRecord only."""

from __future__ import annotations

import struct

import pytest
import zstandard

from kube.differences.reader import DifferenceReader, UnusableRecord, unpack
from kube.differences.records import (
    HEAD,
    MAX_RECORD,
    MAX_UNPACKED_RECORD,
    PREFIX,
    Former,
    Kind,
    event_record,
    pack,
    plain_record,
)
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support.differences import Holder, endpoint_slice

CODEC = codec_for(Encoding.JSON)
BEFORE, AFTER = endpoint_slice("a", 7), endpoint_slice("a", 8, ready=False)
FRAME = CODEC.encode_event("MODIFIED", "discovery.k8s.io/v1", "EndpointSlice", AFTER)
DIFFERENCE = event_record(FRAME, Former("default", "a", 7, BEFORE))


def record(kind: int, content: bytes) -> bytes:
    return HEAD.pack(len(content), kind) + content


def unsized(content: bytes) -> bytes:
    """Return a zstd frame without its decompressed size."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(content) + packer.flush()


def understated(content: bytes) -> bytes:
    """Return a zstd frame that decompresses to more than its header says: the size is the two bytes after magic and
    descriptor."""
    packed = bytearray(pack(content))
    assert 256 <= len(content) < 65536 + 256
    struct.pack_into("<H", packed, 5, 0)
    return bytes(packed)


BAD = {
    "a version that is not held": event_record(FRAME, Former("default", "a", 6, BEFORE)),
    "an object that is not held": event_record(FRAME, Former("default", "b", 7, BEFORE)),
    "another object of this version": event_record(FRAME, Former("default", "a", 7, AFTER)),
    "a damaged difference": DIFFERENCE[:-9] + bytes([DIFFERENCE[-9] ^ 0x40]) + DIFFERENCE[-8:],
    "a wrong checksum": DIFFERENCE[:-1] + bytes([DIFFERENCE[-1] ^ 1]),
    "a difference without an object": record(Kind.DIFFERENCE, b"\0" * (PREFIX.size - 1)),
    "a name that is no text": record(Kind.DIFFERENCE, PREFIX.pack(7, 0, 1) + b"\xff" + pack(FRAME)),
    "no zstd": record(Kind.PACKED, FRAME),
    "nothing": record(Kind.PACKED, b""),
    "two zstd frames": record(Kind.PACKED, pack(FRAME) + pack(FRAME)),
    "a skippable zstd frame": record(Kind.PACKED, b"\x50\x2a\x4d\x18\x03\0\0\0abc"),
    "a piece without the one before it": record(Kind.CHAINED, pack(FRAME, BEFORE)),
    "an unknown kind": record(9, FRAME),
    "half an event": plain_record(FRAME[:-9]),
    "no event": plain_record(b'{"type":"NEWS"}\n'),
    "a long record": HEAD.pack(MAX_RECORD + 1, Kind.PLAIN),
    "a record that unpacks to too much": record(Kind.PACKED, pack(bytes(MAX_UNPACKED_RECORD + 1))),
    "a record without its size": record(Kind.PACKED, unsized(FRAME)),
    "a record that understates its size": record(Kind.PACKED, understated(FRAME)),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_malformed_record_is_unusable(bad: bytes) -> None:
    holder = Holder(CODEC, {("default", "a"): (7, BEFORE)})
    with pytest.raises(UnusableRecord):
        holder.feed(bad)
    with pytest.raises(UnusableRecord):
        holder.feed(DIFFERENCE)
    with pytest.raises(UnusableRecord):
        holder.read(b"")
    assert holder.held == {("default", "a"): (7, BEFORE)}


def test_events_before_a_malformed_record_are_returned() -> None:
    holder = Holder(CODEC, {("default", "a"): (7, BEFORE)})
    with pytest.raises(UnusableRecord):
        holder.feed(DIFFERENCE + DIFFERENCE)
    assert holder.held == {("default", "a"): (8, AFTER)}


@pytest.mark.parametrize("end", [1, HEAD.size, len(DIFFERENCE) - 1])
def test_a_stream_that_ends_within_a_record_is_an_error(end: int) -> None:
    reader = DifferenceReader(CODEC, lambda *_: (7, BEFORE))
    assert list(reader.feed(DIFFERENCE[:end])) == []
    with pytest.raises(UnusableRecord):
        reader.close()


def test_memory_is_bounded_before_it_is_allocated() -> None:
    with pytest.raises(UnusableRecord, match="limit"):
        unpack(pack(bytes(100_000)), limit=99_999)
    assert unpack(pack(bytes(100_000)), limit=100_000) == bytes(100_000)
