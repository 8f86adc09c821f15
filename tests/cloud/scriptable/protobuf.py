"""JSON objects to protobuf messages and back, by the field numbers of kube's schema table.

Fields that the table does not know are left out on the way out and lost on the way in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube.json_type import Json
from kube.wire.schema import ENTRY, KINDS, MANY, TABLE
from tests.cloud.scriptable.resources import Resource, Trait
from tests.cloud.scriptable.wire import MAGIC, block, integer

_NEGATIVE = 2**64
"""Negative numbers are written as if they were unsigned 64-bit ones."""


def speaks_protobuf(resource: Resource) -> bool:
    """Whether the schema knows more of the kind than its metadata; the others are served as JSON alone."""
    return Trait.CUSTOM not in resource.traits and (resource.api_version, resource.kind) in KINDS


def encode_message(value: Json) -> bytes:
    """The bare message of an object, by its apiVersion and kind."""
    return _encode(value, KINDS[value["apiVersion"], value["kind"]])


def encode_metadata(metadata: Json) -> bytes:
    """An ObjectMeta."""
    return _encode(metadata, "ObjectMeta")


def decode_body(body: bytes) -> Json:
    """The object in a request body; ValueError for anything but a known kind in an envelope."""
    if not body.startswith(MAGIC):
        raise ValueError("it does not appear to be a protobuf message")
    envelope = _decode(body[len(MAGIC) :], "Unknown", raw=True)
    type_meta = envelope.get("typeMeta", {})
    api_version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    if (api_version, kind) not in KINDS:
        raise ValueError(f"no kind {kind!r} is known for version {api_version!r}")
    return {"apiVersion": api_version, "kind": kind} | _decode(
        envelope.get("raw", b""), KINDS[api_version, kind]
    )


def _encode(value: Mapping[str, Any], message: str) -> bytes:
    """Absent, null and mistyped fields are left out: the encoder does not validate objects."""
    encoded = bytearray()
    for name, (number, type_, label) in TABLE[message].items():
        present = value.get(name)
        if present is None:
            continue
        if type_ == ENTRY:
            elements: list[Any] = [{"key": key, "value": text} for key, text in present.items()]
        else:
            elements = present if label == MANY else [present]
        for element in elements:
            if type_ in TABLE:
                encoded += block(number, _encode(element, type_))
            elif type_ == "string":
                encoded += block(number, str(element))
            else:
                encoded += integer(number, int(element) % _NEGATIVE)
    return bytes(encoded)


def _decode(encoded: bytes, message: str, *, raw: bool = False) -> Json:
    """The known fields of a message; empty strings are absent, as the server that writes them all means it."""
    names = {number: (name, type_, label) for name, (number, type_, label) in TABLE[message].items()}
    decoded: Json = {}
    for number, content in _fields(encoded):
        if number not in names:
            continue
        name, type_, label = names[number]
        if isinstance(content, int) is (type_ in TABLE or type_ in {"string", "bytes"}):
            raise ValueError(f"field {name} of {message} has the wrong wire type")
        value = _value(content, type_)
        if type_ == ENTRY:
            decoded.setdefault(name, {})[value.get("key", "")] = value.get("value", "")
        elif label == MANY:
            decoded.setdefault(name, []).append(value)
        elif value != "":
            decoded[name] = value
    return (
        decoded if raw else {name: value for name, value in decoded.items() if not isinstance(value, bytes)}
    )


def _value(content: int | bytes, type_: str) -> Any:
    if isinstance(content, int):
        if type_ == "bool":
            return bool(content)
        return content - _NEGATIVE if content >= _NEGATIVE // 2 else content
    if type_ in TABLE:
        return _decode(content, type_)
    return content if type_ == "bytes" else content.decode()


def _fields(encoded: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Each field's number and content: a number, or the bytes of what has a length. ValueError when torn."""
    place = 0
    while place < len(encoded):
        tag, place = _varint(encoded, place)
        match tag & 7:
            case 0:
                number, place = _varint(encoded, place)
                yield tag >> 3, number
            case 2:
                length, place = _varint(encoded, place)
                if place + length > len(encoded):
                    raise ValueError("a field reaches past the end of its message")
                yield tag >> 3, encoded[place : place + length]
                place += length
            case wire_type if wire_type in _FIXED:
                place += _FIXED[wire_type]
            case wire_type:
                raise ValueError(f"unknown wire type {wire_type}")


_FIXED = {1: 8, 5: 4}
"""Wire types of fixed length, which no known field has."""


def _varint(encoded: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(encoded) and shift < 70:
        byte = encoded[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError("a number without end")
