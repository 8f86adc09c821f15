"""The text of an object as a store keeps it: packed, because JSON repeats names and values in each object."""

from __future__ import annotations

from threading import Lock

import zstandard

LEVEL = 1
"""zstd's fastest level packs a slice of 50 endpoints, 10 KB, in 20 µs to a thirteenth, and unpacks it in 8 µs. Parsing
its text takes ten times as long."""
WORTH_PACKING = 1024
"""From this size in bytes packing saves half or more."""

type StoredText = bytes | PackedText
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
        # The result keeps zstd's buffer, which has the size of the whole text. The copy has its own size.
        self._packed = bytes(memoryview(result))

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        with _lock:
            return _unpacker.decompress(self._packed)

    def __sizeof__(self) -> int:
        """Bytes of memory, with the packed text."""
        return object.__sizeof__(self) + self._packed.__sizeof__()


def packed(text: bytes, type_size: int = 0) -> StoredText:
    """A text as it is best kept, with its `PackedText.type_size`."""
    return PackedText(text, type_size) if len(text) >= WORTH_PACKING else text


_lock = Lock()
"""One zstd context for each thread: other threads decode long lists and write copies to the disk."""
_packer = zstandard.ZstdCompressor(LEVEL)
_unpacker = zstandard.ZstdDecompressor()
