"""JSON objects to protobuf messages, by all that Kubernetes publishes, and back.

On the way in, fields are lost that the schema of filters does not know (`kube.wire.schema`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from kube.json_type import Json
from kube.schemas.message_table import META, Many, messages
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
    message = messages().of_kind(value["apiVersion"], value["kind"])
    assert message is not None
    return _encode(value, message.name)


def encode_metadata(metadata: Json) -> bytes:
    """An ObjectMeta."""
    return _encode(metadata, f"{META}.ObjectMeta")


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


def _encode(value: Any, name: str) -> bytes:
    """Absent, null and mistyped fields are left out: the encoder does not validate objects."""
    if name in _WRITTEN:
        return _WRITTEN[name](value)
    encoded = bytearray()
    for field in messages().message(name).fields.values():
        present = value.get(field.name) if field.name else value
        if present is None:
            continue
        if field.many is Many.MAP:
            for key, each in present.items():
                encoded += block(field.number, block(1, str(key)) + _field(2, each, field.kind))
        else:
            for each in present if field.many is Many.LIST else [present]:
                encoded += _field(field.number, each, field.kind)
    return bytes(encoded)


def _field(number: int, value: Any, kind: str) -> bytes:
    try:
        match kind:
            case "b" | "i" | "l":
                return integer(number, int(value) % _NEGATIVE)
            case "s":
                return block(number, str(value))
            case "y":
                return block(number, base64.b64decode(value))
            case "d":
                return b""  # of CRDs alone, which are JSON here
        return block(number, _encode(value, kind))
    except (ValueError, TypeError, AttributeError):
        return b""


def _time(text: str) -> bytes:
    moment = datetime.fromisoformat(text)
    return integer(1, int(moment.timestamp())) + integer(2, moment.microsecond * 1000)


def _int_or_string(value: int | str) -> bytes:
    is_text = isinstance(value, str)
    return integer(1, is_text) + (block(3, str(value)) if is_text else integer(2, int(value)))


_WRITTEN: Mapping[str, Callable[[Any], bytes]] = {
    f"{META}.Time": _time,
    f"{META}.MicroTime": _time,
    f"{META}.FieldsV1": lambda value: block(1, json.dumps(value, separators=(",", ":"))),
    "apimachinery.pkg.api.resource.Quantity": lambda value: block(1, str(value)),
    "apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
}
"""The messages whose JSON is no object of their fields."""


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
