"""Decodes protobuf by the wire format only, as an independent check of the product's codec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class WireField(NamedTuple):
    """A field as encoded; `content` excludes its length."""

    number: int
    wire_type: int
    content: bytes


type Tree = Mapping[int, Tree]
"""The message fields of a message in which the order may change, by field number."""

type Content = frozenset[tuple[int, int, object, int]]


def walk(message: bytes) -> Iterator[WireField]:
    """Yield the fields of a message, in order; ValueError if it is truncated."""
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        begin = position
        if wire_type == VARINT:
            _, end = read_varint(message, position)
        elif wire_type == LENGTH:
            size, begin = read_varint(message, position)
            end = begin + size
        elif wire_type in (FIXED64, FIXED32):
            end = begin + (8 if wire_type == FIXED64 else 4)
        else:
            raise ValueError(f"wire type {wire_type}")
        if end > len(message):
            raise ValueError("torn")
        yield WireField(number, wire_type, message[begin:end])
        position = end


def read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return a number and its end offset."""
    number = shift = 0
    while True:
        if position >= len(message):
            raise ValueError("torn")
        byte = message[position]
        number |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return number, position


def find(message: bytes, *path: int) -> list[bytes]:
    """Return the contents of the fields at a path of numbers, in order."""
    number, *rest = path
    found = [field.content for field in walk(message) if field.number == number]
    return [inner for content in found for inner in find(content, *rest)] if rest else found


def content(message: bytes, tree: Tree) -> Content:
    """Return a message as the multiset of its fields; fields outside `tree` are compared by their bytes."""
    counted: Counter[tuple[int, int, object]] = Counter()
    for number, wire_type, raw in walk(message):
        inner = tree.get(number)
        descends = inner is not None and wire_type == LENGTH
        counted[number, wire_type, content(raw, inner) if descends and inner is not None else raw] += 1
    return frozenset((*field, times) for field, times in counted.items())
