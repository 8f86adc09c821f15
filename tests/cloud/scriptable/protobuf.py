"""Conversion between JSON objects and protobuf messages, by the complete schema that Kubernetes publishes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kube.json_type import Json
from kube.message_table import META, FieldCardinality
from kube.schemas.json_objects import is_known, json_object
from kube.schemas.published import messages
from kube.wire.protobuf_codec import open_envelope
from kube.wire.schema import KINDS
from tests.cloud.scriptable.resources import Resource, Trait
from tests.cloud.scriptable.wire import block, integer

_NEGATIVE = 2**64
"""Negative numbers are written as unsigned 64-bit ones."""


def speaks_protobuf(resource: Resource) -> bool:
    """True if the schema has more of the kind than metadata; other kinds are served only as JSON."""
    return Trait.CUSTOM not in resource.traits and (resource.api_version, resource.kind) in KINDS


def encode_message(value: Json) -> bytes:
    """Return the bare message of an object, by its apiVersion and kind."""
    message = messages().of_kind(value["apiVersion"], value["kind"])
    assert message is not None
    return _encode(value, message.name)


def encode_metadata(metadata: Json) -> bytes:
    return _encode(metadata, f"{META}.ObjectMeta")


def decode_body(body: bytes) -> Json:
    """Return the object in a request body; ValueError for anything but a known kind in an envelope."""
    api_version, kind, raw = open_envelope(body)
    if not is_known(api_version, kind):
        raise ValueError(f"no kind {kind!r} is known for version {api_version!r}")
    return json_object(api_version, kind, raw)


def _encode(value: Any, name: str) -> bytes:
    """Encode an object; absent, null and mistyped fields are left out, as the encoder does not validate."""
    if name in _WRITTEN:
        return _WRITTEN[name](value)
    encoded = bytearray()
    for field in messages().message(name).fields.values():
        present = value.get(field.name) if field.name else value
        if present is None:
            continue
        if field.cardinality is FieldCardinality.MAP:
            for key, each in present.items():
                encoded += block(field.number, block(1, str(key)) + _field(2, each, field.kind))
        else:
            for each in present if field.cardinality is FieldCardinality.LIST else [present]:
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
                return b""  # used only by CRDs, which are JSON here
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
"""The messages whose JSON is not an object with their fields."""
