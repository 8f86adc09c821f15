"""Encodes header blocks of HTTP/2 by HPACK (RFC 7541): a field that was sent before takes a byte or two, by one
look-up.

hpack's own encoder compares each field with all that were sent before, and its time for Huffman's code is quadratic in
a value's length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable

TABLE_SIZE = 4096
"""Bytes of the table that both sides begin with (RFC 7541, 4.2), and the most that an encoder uses."""
FIELD_OVERHEAD = 32
"""Bytes that each field in the table counts besides its own (4.1)."""
INDEXED, ADDED, RESIZED, HUFFMAN = 0x80, 0x40, 0x20, 0x80
"""The first bits of a field in the table (6.1), of one that comes into it (6.2.1), of the table's size (6.3), and of
text in Huffman's code (5.2)."""
_CODES = [f"{code:0{length}b}" for code, length in zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)]
_STATIC = {field: number for number, field in reversed(list(enumerate(HeaderTable.STATIC_TABLE, 1)))}
_STATIC_NAMES = {name: number for (name, _), number in _STATIC.items()}
_STATIC_NAMES |= {name: number for (name, _), number in sorted(_STATIC.items(), key=lambda item: -item[1])}
FIRST_ADDED = len(_STATIC) + 1
"""The number of the newest field in the table."""

type HeadField = tuple[bytes, bytes]


class HpackEncoder:
    """One side's table of a connection. It is in step with the peer's as long as each head is sent, in order."""

    def __init__(self) -> None:
        self._entries: deque[HeadField] = deque()
        self._added = 0
        """How many fields ever came into the table."""
        self._fields: dict[HeadField, int] = {}
        """Which one each is of those that came."""
        self._names: dict[bytes, int] = {}
        self._size = 0
        self._limit = TABLE_SIZE
        self._resized: list[int] = []
        """The table sizes that the next head announces: its least size since the last one, and its size now (4.2)."""

    def resize(self, limit: int) -> None:
        """Keep no more bytes than the peer does."""
        limit = min(limit, TABLE_SIZE)
        if limit != self._limit:
            self._resized = [*{min(limit, *self._resized, self._limit): None, limit: None}]
            self._limit = limit
            self._shrink_to(limit)

    def encode(self, fields: Iterable[HeadField]) -> bytes:
        """Encode a header block, in one piece."""
        packed = bytearray()
        for size in self._resized:
            packed += _number(size, 5, RESIZED)
        self._resized.clear()
        for field in fields:
            known = _STATIC.get(field)
            if known is None and (added := self._fields.get(field)) is not None:
                known = FIRST_ADDED + self._added - added
            if known is not None and known < 0x7F:
                packed.append(INDEXED | known)
            elif known is not None:
                packed += _number(known, 7, INDEXED)
            else:
                self._encode_new(packed, *field)
        return bytes(packed)

    def _encode_new(self, packed: bytearray, name: bytes, value: bytes) -> None:
        known = _STATIC_NAMES.get(name)
        if known is None and (added := self._names.get(name)) is not None:
            known = FIRST_ADDED + self._added - added
        packed += _number(known or 0, 6, ADDED)
        if known is None:
            packed += _text(name)
        packed += _text(value)
        self._add(name, value)

    def _add(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value) + FIELD_OVERHEAD
        self._shrink_to(max(self._limit - size, 0))
        if size > self._limit:
            return  # the table is empty now, as the peer's is (4.4)
        self._added += 1
        self._size += size
        self._entries.append((name, value))
        self._fields[name, value] = self._names[name] = self._added

    def _shrink_to(self, limit: int) -> None:
        while self._size > limit:
            field = self._entries.popleft()
            name, value = field
            oldest = self._added - len(self._entries)
            self._size -= len(name) + len(value) + FIELD_OVERHEAD
            if self._fields.get(field) == oldest:
                del self._fields[field]
            if self._names.get(name) == oldest:
                del self._names[name]


def _number(value: int, bits: int, first: int) -> bytes:
    """A number in so many bits of the first byte, and in further ones (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    made = bytearray((first | most,))
    value -= most
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _text(raw: bytes) -> bytes:
    """Text in Huffman's code, or as it is where that is no longer (RFC 7541, 5.2)."""
    code = "".join([_CODES[byte] for byte in raw])
    size = (len(code) + 7) // 8
    if size >= len(raw):
        return _number(len(raw), 7, 0) + raw
    padded = code + "1" * (8 * size - len(code))
    return _number(size, 7, HUFFMAN) + int(padded, 2).to_bytes(size)
