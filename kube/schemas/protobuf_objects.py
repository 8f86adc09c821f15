"""Converts a JSON object to protobuf, the reverse of `kube.schemas.json_objects`.

Fields that the schema lacks, such as those of a newer server, have no number and are dropped, as by any protobuf
client.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from kube.json_type import Json
from kube.message_table import FieldCardinality, MessageField
from kube.schemas.json_objects import MAX_DEPTH, WRITTEN
from kube.schemas.published import messages
from kube.wire.json_fields import write_json
from kube.wire.protobuf_codec import varint

_DOUBLE = struct.Struct("<d")


def protobuf_object(tree: Json) -> bytes:
    """Convert an object to a bare protobuf message.

    LookupError for an unknown kind, ValueError if a value has the wrong type.
    """
    message = messages().of_kind(str(tree.get("apiVersion")), str(tree.get("kind")))
    if message is None:
        raise LookupError(f"{tree.get('apiVersion')} {tree.get('kind')} is not a built-in kind")
    try:
        return _message(message.name, tree, MAX_DEPTH)
    except (TypeError, AttributeError, binascii.Error, struct.error, OverflowError) as error:
        raise ValueError(f"a value is not of its field's type: {error}") from error


def _message(name: str, value: Any, deep: int) -> bytes:
    if not deep:
        raise ValueError(f"messages are nested deeper than {MAX_DEPTH} levels")
    fields = _read(name, value)
    parts: list[bytes] = []
    for tag, field in messages().message(name).fields.items():
        if not field.name:
            inlined = _message(field.kind, fields, deep - 1)
            if inlined:
                parts.append(varint(tag) + varint(len(inlined)) + inlined)
        elif (found := fields.get(field.name)) is not None:
            parts += (varint(tag) + each for each in _values(field, found, deep))
    return b"".join(parts)


def _values(field: MessageField, value: Any, deep: int) -> list[bytes]:
    """The values of a field, as they follow its tag."""
    if field.cardinality is FieldCardinality.LIST:
        return [_value(field, each, deep) for each in value]
    if field.cardinality is FieldCardinality.MAP:
        return [_entry(field, key, each, deep) for key, each in value.items()]
    return [_value(field, value, deep)]


def _entry(field: MessageField, key: str, value: Any, deep: int) -> bytes:
    entry = b"\x0a" + _delimited(key.encode())
    if value is not None:
        entry += varint(2 << 3 | (0 if field.kind in "bil" else 2)) + _value(field, value, deep)
    return _delimited(entry)


def _value(field: MessageField, value: Any, deep: int) -> bytes:
    match field.kind:
        case "s":
            return _delimited(value.encode())
        case "y":
            return _delimited(base64.b64decode(value, validate=True))
        case "b":
            return b"\x01" if value else b"\x00"
        case "i" | "l":
            return varint(int(value) & (1 << 64) - 1)
        case "d":
            return _DOUBLE.pack(value)
    return _delimited(_message(field.kind, value if value is not None else {}, deep - 1))


def _delimited(content: bytes) -> bytes:
    return varint(len(content)) + content


def _read(name: str, value: Any) -> Json:
    """Convert a message's JSON to its fields by protobuf name."""
    if name in WRITTEN:
        fields: Json = _reads()[name](value)
        return fields
    if not isinstance(value, dict):
        raise ValueError(f"a value is not of its field's type: it is no {name}")
    return value


def _time(value: str) -> Json:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(f"a time without a zone: {value}")
    nanos = moment.microsecond * 1000
    return {"seconds": int(moment.replace(microsecond=0).timestamp()), **({"nanos": nanos} if nanos else {})}


def _quantity(value: float | str) -> Json:
    return {"string": str(value)}


def _int_or_string(value: int | str) -> Json:
    return {"type": 1, "strVal": value} if isinstance(value, str) else {"type": 0, "intVal": value}


def _raw_json(value: Any) -> Json:
    raw = base64.b64encode(write_json(value)).decode()
    return {"raw": raw, "Raw": raw}


def _schema_or_list(value: Any) -> Json:
    return {"jSONSchemas": value} if isinstance(value, list) else {"schema": value}


def _schema_or_bool(value: Any) -> Json:
    return {"allows": value} if isinstance(value, bool) else {"allows": True, "schema": value}


def _schema_or_texts(value: Any) -> Json:
    return {"property": value} if isinstance(value, list) else {"schema": value}


def _list(value: list[Any]) -> Json:
    return {"items": value}


@cache
def _reads() -> Mapping[str, Callable[[Any], Json]]:
    """For each message with its own JSON form: the reverse of its function in `WRITTEN`."""
    short: Mapping[str, Callable[[Any], Json]] = {
        "Time": _time,
        "MicroTime": _time,
        "Quantity": _quantity,
        "IntOrString": _int_or_string,
        "JSONSchemaPropsOrArray": _schema_or_list,
        "JSONSchemaPropsOrBool": _schema_or_bool,
        "JSONSchemaPropsOrStringArray": _schema_or_texts,
        "Verbs": _list,
        "ExtraValue": _list,
        "FieldsV1": _raw_json,
        "RawExtension": _raw_json,
        "JSON": _raw_json,
    }
    return {name: short[name.rpartition(".")[2]] for name in WRITTEN}
