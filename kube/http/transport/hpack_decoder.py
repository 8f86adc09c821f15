"""Decodes HTTP/2 header blocks by HPACK (RFC 7541). The library hpack makes two objects of each field, and logs it.

Decoding takes a twentieth of the time of a relayed request.
"""

from __future__ import annotations

from collections import deque

from hpack.exceptions import HPACKDecodingError
from hpack.table import HeaderTable

from kube.http.transport.hpack_encoder import (
    ADDED,
    FIELD_OVERHEAD,
    FIRST_ADDED,
    HUFFMAN,
    INDEXED,
    RESIZED,
    TABLE_SIZE,
    HeadField,
)
from kube.http.transport.http2_framing import LARGEST_31_BITS, EndCode, PeerError
from kube.http.transport.huffman import decode_huffman

ONE_BYTE = 0xFF
"""A byte below this is a complete indexed field, as most fields of a head are."""
_STATIC = HeaderTable.STATIC_TABLE


class HpackDecoder:
    """The decoder of one connection. Its dynamic table matches the peer's if it decodes every header block, in
    order."""

    def __init__(self, limit: int) -> None:
        """Set `limit`, the most bytes of one head's fields, counted as HPACK counts them."""
        self._limit = limit
        self._entries: deque[HeadField] = deque()
        """The dynamic table, newest field first."""
        self._size = 0
        self._table_size = TABLE_SIZE

    def decode(self, block: bytes) -> list[HeadField]:
        """Decode a header block. PeerError if it is malformed or its fields exceed the limit."""
        try:
            return self._fields(block)
        except (IndexError, HPACKDecodingError) as error:
            raise _malformed(str(error)) from None

    def _fields(self, block: bytes) -> list[HeadField]:
        fields: list[HeadField] = []
        at = size = 0
        while at < len(block):
            first = block[at]
            if first & INDEXED:
                if first < ONE_BYTE:
                    number, at = first & 0x7F, at + 1
                else:
                    number, at = _number(block, at, 7)
                name, value = field = self._field(number)
            elif first & ADDED or not first & RESIZED:
                number, at = _number(block, at, 6 if first & ADDED else 4)
                name, at = (self._field(number)[0], at) if number else _text(block, at)
                value, at = _text(block, at)
                field = name, value
                if first & ADDED:
                    self._add(field)
            else:
                table_size, at = _number(block, at, 5)
                if fields or table_size > TABLE_SIZE:
                    raise _malformed("a table that is resized within a head, or too large")
                self._table_size = table_size
                self._shrink_to(table_size)
                continue
            size += len(name) + len(value) + FIELD_OVERHEAD
            if size > self._limit:
                raise _malformed(f"a head of more than {self._limit} bytes")
            fields.append(field)
        return fields

    def _field(self, number: int) -> HeadField:
        if number >= FIRST_ADDED:
            return self._entries[number - FIRST_ADDED]
        if not number:
            raise _malformed("a field without a number")
        return _STATIC[number - 1]

    def _add(self, field: HeadField) -> None:
        size = len(field[0]) + len(field[1]) + FIELD_OVERHEAD
        self._shrink_to(max(self._table_size - size, 0))
        if size <= self._table_size:
            self._size += size
            self._entries.appendleft(field)

    def _shrink_to(self, limit: int) -> None:
        while self._size > limit:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + FIELD_OVERHEAD


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Decode an integer with a prefix of `bits` bits (RFC 7541, 5.1). Return it and its end offset."""
    most = (1 << bits) - 1
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    shift = 0
    while True:
        byte = block[at]
        number += (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if number > LARGEST_31_BITS:
            raise _malformed("a number that is too large")
        if byte < 0x80:
            return number, at


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """Decode a string (RFC 7541, 5.2). Return it and its end offset."""
    is_packed = block[at] & HUFFMAN
    length, at = _number(block, at, 7)
    text, end = block[at : at + length], at + length
    if end > len(block):
        raise _malformed("a text that is cut off")
    return decode_huffman(text) if is_packed else text, end


def _malformed(why: str) -> PeerError:
    return PeerError(f"a head cannot be unpacked: {why}", EndCode.COMPRESSION_ERROR)
