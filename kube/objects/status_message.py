"""Reads messages of the status table as the API's JSON, and writes such JSON into a message in place.

A write keeps every other field, unknown ones included, in the message and in each element of a list that stays.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

import orjson

from kube.json_type import Json
from kube.objects.merge_keys import MergeKeys, below
from kube.objects.status_json import read_time
from kube.objects.status_schema import MAPS, TIME, Shown, StatusField, new_message, status_table
from kube.schemas.written_types import go_time
from kube.wire.schema import ENTRY

_SCALARS = frozenset({"string", "int32", "int64", "bool"})


def read_message(name: str, message: Any) -> Json:
    """The JSON of a message; ValueError for a time that JSON cannot have."""
    document: Json = {}
    for field, spec in status_table()[name].items():
        value = _read_field(spec, message, field)
        if spec.shown is Shown.ALWAYS or (value is not None if spec.shown is Shown.PRESENT else value):
            document[field] = value
    return document


def write_message(name: str, message: Any, document: Json, keys: MergeKeys, path: str) -> None:
    """Write canonical JSON into a message; fields that are equal stay untouched."""
    before = read_message(name, message)
    for field, spec in status_table()[name].items():
        value = document.get(field)
        if value != before.get(field):
            _write_field(spec, message, field, value, keys, below(path, field))


def _read_field(spec: StatusField, message: Any, field: str) -> Any:
    if spec.shown is Shown.PRESENT and not message.HasField(field):
        return None
    value = getattr(message, field)
    if spec.kind in MAPS:
        return {_text(entry.key): _read_entry(spec.kind, entry) for entry in value}
    if spec.many:
        return [_read_value(spec.kind, entry) for entry in value]
    return _read_value(spec.kind, value)


def _read_value(kind: str, value: Any) -> Any:
    if kind == TIME:
        # An empty message is Go's zero time; the beginning of 1970 has its zeros on the wire.
        return go_time(value.seconds) if value.ByteSize() else None
    if kind in _SCALARS:
        return _text(value) if kind == "string" else value
    return read_message(kind, value)


def _read_entry(kind: str, entry: Any) -> str:
    return _text(entry.value if kind == ENTRY else entry.value.string)


def _text(value: str | bytes) -> str:
    """The runtime gives bytes for a string that is not UTF-8; the server's JSON shows it this way."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _write_field(spec: StatusField, message: Any, field: str, value: Any, keys: MergeKeys, path: str) -> None:
    if spec.kind in MAPS:
        _write_map(spec.kind, getattr(message, field), value or {})
    elif spec.many:
        elements = getattr(message, field)
        written = (
            (value or []) if spec.kind in _SCALARS else _elements(spec, elements, value or [], keys, path)
        )
        del elements[:]
        elements.extend(written)
    elif spec.kind in _SCALARS:
        if value is None and spec.shown is Shown.PRESENT:
            message.ClearField(field)
        else:
            # Zero is written out, as the server writes it.
            setattr(message, field, type(getattr(message, field))() if value is None else value)
    elif value is None:
        message.ClearField(field)
    else:
        child = getattr(message, field)
        child.SetInParent()
        if spec.kind == TIME:
            child.seconds, child.nanos = read_time(value, path), 0
        else:
            write_message(spec.kind, child, value, keys, path)


def _write_map(kind: str, entries: Any, values: dict[str, str]) -> None:
    old = {_text(entry.key): entry for entry in entries}
    written = []
    for key, value in values.items():
        entry = new_message(kind)
        if key in old:
            entry.CopyFrom(old[key])
        entry.key = key
        if _read_entry(kind, entry) != value or key not in old:
            if kind == ENTRY:
                entry.value = value
            else:
                entry.value.string = value
        written.append(entry)
    del entries[:]
    entries.extend(written)


def _elements(
    spec: StatusField, elements: Iterable[Any], documents: list[Json], keys: MergeKeys, path: str
) -> list[Any]:
    """An element for each document: the old one of the same merge key or, in lists without, of the same content."""
    key = keys.get(path)
    old: dict[bytes, deque[Any]] = {}
    for item in elements:
        old.setdefault(_mark(read_message(spec.kind, item), key), deque()).append(item)
    written = []
    for document in documents:
        element = new_message(spec.kind)
        if sources := old.get(_mark(document, key)):
            element.CopyFrom(sources.popleft())
        write_message(spec.kind, element, document, keys, path)
        written.append(element)
    return written


def _mark(document: Json, key: str | None) -> bytes:
    """The key by which an element of the message is found for a document."""
    return orjson.dumps(document if key is None else document[key], option=orjson.OPT_SORT_KEYS)
