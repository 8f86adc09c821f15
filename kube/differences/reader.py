"""Reads a watch that is encoded as differences, and validates all of it.

The reader checks each size before it allocates memory. It applies a difference only to the object version that the
receiver holds, and zstd's checksum reveals a wrong prefix. After an error the stream is unusable, but the events
before the error are valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import zstandard

from kube.differences.records import (
    HEAD,
    MAX_RECORD,
    MAX_UNPACKED_RECORD,
    PREFIX,
    Kind,
    dictionary,
)
from kube.wire.codec_base import Codec, WatchFrame

type FormerOf = Callable[[str, str], tuple[int, bytes] | None]
"""Looks up an object by namespace and name. Returns the version and the encoded bytes that the receiver holds, or
None."""


class UnusableRecord(ValueError):
    """A record is damaged, exceeds a limit, or is a difference to a version that the receiver does not hold."""


class DifferenceReader:
    """Splits the bytes of one stream, in chunks of any size, into watch events."""

    def __init__(self, codec: Codec, former: FormerOf) -> None:
        self._codec = codec
        self._former = former
        self._buffer = bytearray()
        self._before = b""
        """The previous piece of the initial state, decompressed."""
        self._is_broken = False

    def feed(self, chunk: bytes) -> Iterator[WatchFrame]:
        """Yield the events that this chunk completes. UnusableRecord if a record cannot be read.

        The caller must apply each event before it asks for the next, which may be a difference to it.
        """
        if self._is_broken:
            raise UnusableRecord("the stream was broken before")
        self._buffer += chunk
        start = 0
        try:
            while (record := self._next(start)) is not None:
                kind, content, start = record
                yield from self._frames(kind, content)
        except UnusableRecord:
            self._is_broken = True
            raise
        finally:
            del self._buffer[:start]

    def close(self) -> None:
        """End the stream. UnusableRecord if it ends within a record, or an earlier record was unusable."""
        if self._is_broken or self._buffer:
            self._is_broken = True
            raise UnusableRecord(f"the stream ended within a record, after {len(self._buffer)} bytes of it")

    def _next(self, start: int) -> tuple[int, bytes, int] | None:
        """Return kind, content and end offset of the record at `start`; None while the record is incomplete."""
        if len(self._buffer) < start + HEAD.size:
            return None
        size, kind = HEAD.unpack_from(self._buffer, start)
        if size > MAX_RECORD:
            raise UnusableRecord(f"a record of {size} bytes is over the limit of {MAX_RECORD}")
        begin = start + HEAD.size
        if len(self._buffer) < begin + size:
            return None
        return kind, bytes(self._buffer[begin : begin + size]), begin + size

    def _frames(self, kind: int, content: bytes) -> list[WatchFrame]:
        """The watch events of a record. A record has only complete frames."""
        unpacked = self._unpacked(kind, content)
        self._before = unpacked if kind in (Kind.PACKED, Kind.CHAINED) else b""
        reader = self._codec.frames()
        try:
            frames = reader.feed(unpacked)
            reader.close()
        except ValueError as error:
            raise UnusableRecord(f"a record ends within an event: {error}") from error
        return frames

    def _unpacked(self, kind: int, content: bytes) -> bytes:
        match kind:
            case Kind.PLAIN:
                return content
            case Kind.PACKED:
                return unpack(content)
            case Kind.CHAINED:
                return unpack(content, self._before)
            case Kind.DIFFERENCE:
                prefix, start = self._prefix(content)
                return unpack(content[start:], prefix)
            case _:
                raise UnusableRecord(f"a record is of the unknown kind {kind}")

    def _prefix(self, content: bytes) -> tuple[bytes, int]:
        """Return the encoded object that a difference applies to, and the offset of the record's zstd frame."""
        if len(content) < PREFIX.size:
            raise UnusableRecord("a difference names no object")
        version, namespace_size, name_size = PREFIX.unpack_from(content)
        middle = PREFIX.size + namespace_size
        start = middle + name_size
        try:
            namespace, name = content[PREFIX.size : middle].decode(), content[middle:start].decode()
        except UnicodeDecodeError as error:
            raise UnusableRecord(f"a difference names no object: {error}") from error
        held = self._former(namespace, name)
        if held is None or held[0] != version:
            has = f"version {held[0]}" if held else "no version"
            raise UnusableRecord(
                f"a difference is to version {version} of {namespace}/{name}, and {has} is held"
            )
        return held[1], start


def unpack(packed: bytes, prefix: bytes = b"", limit: int = MAX_UNPACKED_RECORD) -> bytes:
    """Decompress one zstd frame. UnusableRecord for other data, a wrong prefix, or more than `limit` bytes."""
    try:
        size = zstandard.get_frame_parameters(packed).content_size
        if size > limit:
            raise UnusableRecord(f"a record unpacks to more than the limit of {limit} bytes")
        unpacker = zstandard.ZstdDecompressor(dictionary(prefix))
        unpacked: bytes = unpacker.decompress(packed, max_output_size=limit, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise UnusableRecord(f"a record cannot be unpacked: {error}") from error
    if len(unpacked) != size:
        raise UnusableRecord(f"a record unpacks to {len(unpacked)} bytes instead of {size}")
    return unpacked
