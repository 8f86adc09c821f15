"""The text of an object as a store keeps it: packed, because JSON repeats names and values in each object."""

from __future__ import annotations

from threading import Lock

import zstandard

LEVEL = 1
"""zstd's fastest: a slice of 50 endpoints, 10 KB, is packed in 20 µs to a thirteenth, and unpacked in 8. To parse its
text takes ten times as long."""
WORTH_PACKING = 1024
"""Bytes from which on packing saves half and more."""

type Kept = bytes | PackedText
"""An object as a store keeps it: `len` is the size of its raw form, `bytes` the raw form itself."""


class PackedText:
    """An immutable text, packed in memory."""

    __slots__ = ("_packed", "_size", "type_size")

    def __init__(self, text: bytes, type_size: int = 0) -> None:
        """`type_size` is that of `kube.wire.json_fields.size_of_type`, which needs no unpacking then."""
        self.type_size = type_size
        self._size = len(text)
        with _lock:
            result = _packer.compress(text)
        # The result keeps the room that zstd had for it, which is that of the whole text. The copy takes what it needs.
        self._packed = bytes(memoryview(result))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        with _lock:
            return _unpacker.decompress(self._packed)

    def __sizeof__(self) -> int:
        """Bytes of memory, with the packed text."""
        return object.__sizeof__(self) + self._packed.__sizeof__()


def packed(text: bytes, type_size: int = 0) -> Kept:
    """A text as it is best kept, with its `PackedText.type_size`."""
    return PackedText(text, type_size) if len(text) >= WORTH_PACKING else text


_lock = Lock()
"""Threads read long lists and write copies to the disk; zstd's contexts are for one thread at a time."""
_packer = zstandard.ZstdCompressor(LEVEL)
_unpacker = zstandard.ZstdDecompressor()
