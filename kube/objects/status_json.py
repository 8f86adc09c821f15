"""Converts a Node's or Pod's status to the JSON that kube-apiserver would send: values have the API's types, and empty
fields are present or omitted as the server does.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kube.json_type import Json
from kube.message_table import META, FieldCardinality, MessageField
from kube.schemas.json_objects import go_time
from kube.schemas.published import messages

TIME = f"{META}.Time"
SCALARS: Mapping[str, tuple[str, Any]] = {
    "s": ("string", ""),
    "i": ("int32", 0),
    "l": ("int64", 0),
    "b": ("bool", False),
}
"""The name and the zero value of each scalar field type."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_LIMITS: dict[str, int] = {"i": 2**31, "l": 2**63}


def canonical(name: str, document: object, path: str = "") -> Json:
    """Convert the JSON of a message of `kube.schemas.published`; ValueError if a value has the wrong type.

    Unknown fields, which a newer server may send, stay unchanged.
    """
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ValueError(f"{path or name}: expected an object, got {_text_of(document)}")
    fields = {field.name: field for field in messages().message(name).fields.values()}
    result: Json = {}
    for field_name, field in fields.items():
        value = _canonical_field(
            field, document.get(field_name), f"{path}.{field_name}" if path else field_name
        )
        is_zero = value is None if field.is_pointer else value in (None, "", 0, [], {})
        if field.is_always_there or not is_zero:
            result[field_name] = value
    newer = {key: value for key, value in document.items() if key not in fields and value is not None}
    return result | newer


def _canonical_field(field: MessageField, value: Any, path: str) -> Any:
    if field.cardinality is FieldCardinality.MAP:
        return _canonical_map(field.kind, value, path)
    if field.cardinality is FieldCardinality.ONE:
        return None if value is None and field.is_pointer else _canonical_value(field.kind, value, path)
    # An empty slice of Go becomes null when it passes through protobuf.
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list, got {_text_of(value)}")
    return [_canonical_value(field.kind, item, f"{path}[{index}]") for index, item in enumerate(value)]


def _canonical_value(kind: str, value: Any, path: str) -> Any:
    if kind == TIME:
        return None if value is None else go_time(read_time(value, path))
    return _scalar(kind, value, path) if kind in SCALARS else canonical(kind, value, path)


def _scalar(kind: str, value: Any, path: str) -> Any:
    name, zero = SCALARS[kind]
    if value is None:
        return zero
    if type(value) is not type(zero):
        raise ValueError(f"{path}: expected {name}, got {_text_of(value)}")
    if kind in _LIMITS and not -_LIMITS[kind] <= value < _LIMITS[kind]:
        raise ValueError(f"{path}: {value} is no {name}")
    return value


def _canonical_map(kind: str, value: Any, path: str) -> dict[str, str] | None:
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a map, got {_text_of(value)}")
    read = _text if kind == "s" else _quantity
    return {key: read(value[key], f"{path}[{key}]") for key in sorted(value)}


def _text(value: Any, path: str) -> str:
    text: str = _scalar("s", value, path)
    return text


def _quantity(value: Any, path: str) -> str:
    """A quantity as text. A number becomes text, as in kube-apiserver."""
    text = (
        str(value) if isinstance(value, int | float) and not isinstance(value, bool) else _text(value, path)
    )
    if not text:
        return "0"
    if not _QUANTITY.fullmatch(text):
        raise ValueError(f"{path}: {_text_of(value)} is no quantity")
    return text


def read_time(value: object, path: str) -> int:
    """Parse an RFC 3339 time to seconds since 1970, without fractions, as in the API's JSON."""
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{path}: expected a time, got {_text_of(value)}")
    try:
        moment = datetime.fromisoformat(match[1] + match[2])
        return int((moment - _EPOCH).total_seconds())
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


def _text_of(value: object) -> str:
    return repr(value)[:64]
