"""Encodes HTTP/2 header blocks by HPACK (RFC 7541). A repeated field takes a byte or two and one dictionary look-up.

The library hpack compares each field with its whole table, and its Huffman coding takes quadratic time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable

TABLE_SIZE = 4096
"""The initial size in bytes of the dynamic table (RFC 7541, 4.2), and the largest one that this encoder uses."""
FIELD_OVERHEAD = 32
"""Bytes that each field of the table counts in addition to its name and value (4.1)."""
INDEXED, ADDED, RESIZED, HUFFMAN = 0x80, 0x40, 0x20, 0x80
"""The first bits of an indexed field (6.1), a field to be added (6.2.1), a table size update (6.3), and Huffman-coded
text (5.2)."""
_CODES = [f"{code:0{length}b}" for code, length in zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)]
_STATIC = {field: number for number, field in reversed(list(enumerate(HeaderTable.STATIC_TABLE, 1)))}
_STATIC_NAMES = {name: number for (name, _), number in _STATIC.items()}
_STATIC_NAMES |= {name: number for (name, _), number in sorted(_STATIC.items(), key=lambda item: -item[1])}
FIRST_ADDED = len(_STATIC) + 1
"""The index of the newest field in the dynamic table."""

type HeadField = tuple[bytes, bytes]


class HpackEncoder:
    """The encoder of one connection. Its dynamic table matches the peer's if every encoded head is sent, in order."""

    def __init__(self) -> None:
        self._entries: deque[HeadField] = deque()
        self._added = 0
        """The number of fields ever added to the table."""
        self._fields: dict[HeadField, int] = {}
        """The sequence number of each added field."""
        self._names: dict[bytes, int] = {}
        self._size = 0
        self._limit = TABLE_SIZE
        self._resized: list[int] = []
        """The table size updates that the next head must announce: the smallest size since the last head, and the
        current one (4.2)."""

    def resize(self, limit: int) -> None:
        """Limit the table to the size that the peer allows, in bytes."""
        limit = min(limit, TABLE_SIZE)
        if limit != self._limit:
            self._resized = [*{min(limit, *self._resized, self._limit): None, limit: None}]
            self._limit = limit
            self._shrink_to(limit)

    def encode(self, fields: Iterable[HeadField]) -> bytes:
        """Encode a header block."""
        packed = bytearray()
        for size in self._resized:
            packed += _number(size, 5, RESIZED)
        self._resized.clear()
        for field in fields:
            added = self._fields.get(field)
            known = FIRST_ADDED + self._added - added if added is not None else _STATIC.get(field)
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
            return  # a field larger than the table empties it on both sides (4.4)
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
    """Encode an integer with a prefix of `bits` bits (RFC 7541, 5.1)."""
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
    """Encode a string, with Huffman coding if that is shorter (RFC 7541, 5.2)."""
    code = "".join([_CODES[byte] for byte in raw])
    size = (len(code) + 7) // 8
    if size >= len(raw):
        return _number(len(raw), 7, 0) + raw
    padded = code + "1" * (8 * size - len(code))
    return _number(size, 7, HUFFMAN) + int(padded, 2).to_bytes(size)
