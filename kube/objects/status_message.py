"""Converts the metadata and status of Node and Pod messages to JSON, and writes JSON into such messages in place.

A write preserves every other field, unknown ones included, in the message and in each remaining element of a list. The
protobuf runtime knows the fields of `kube.schemas.published`, and preserves those of newer servers. `kube.wire.schema`
has the fields that filters read.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import orjson
from google.protobuf.message import DecodeError

from kube.json_type import Json
from kube.message_table import FieldCardinality, Message, MessageField
from kube.objects.status_json import TIME, read_time
from kube.objects.strategic_merge import MergeKeys, below
from kube.schemas.json_objects import json_message
from kube.schemas.published import messages
from kube.wire.protobuf_fields import read_text
from kube.wire.schema import message_classes

CORE = "api.core.v1"

_LEFT_OUT = frozenset({"spec", "managedFields"})
"""Messages that status writes never change. They stay unknown fields."""


@cache
def _classes() -> Mapping[str, Any]:
    """The protobuf classes of Node, Pod and all messages in them."""
    return message_classes(_reached([f"{CORE}.Node", f"{CORE}.Pod"]))


def _reached(names: list[str]) -> Iterator[Message]:
    seen = set(names)
    while names:
        name = names.pop()
        fields = messages().message(name).fields.values()
        known = Message(name, tuple(field for field in fields if field.name not in _LEFT_OUT))
        yield known
        inner = {field.kind for field in known.fields.values() if field.is_message} - seen
        seen |= inner
        names += inner


def new_message(name: str) -> Any:
    """An empty message."""
    return _classes()[name]()


def parse_message(name: str, raw: bytes) -> Any:
    """Parse a message; ValueError if it is malformed."""
    try:
        return _classes()[name].FromString(raw)
    except DecodeError as error:
        raise ValueError(f"not a protobuf {name}: {error}") from error


def read_message(name: str, message: Any) -> Json:
    """Convert a message's known fields to JSON; ValueError for a time that JSON cannot express."""
    known = new_message(name)
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return json_message(name, known.SerializeToString())


def write_message(name: str, message: Any, document: Json, keys: MergeKeys, path: str) -> None:
    """Write canonical JSON into a message. Fields with equal values are not touched."""
    before = read_message(name, message)
    for field in messages().message(name).fields.values():
        value = document.get(field.name)
        if value != before.get(field.name):
            _write_field(field, message, value, keys, below(path, field.name))


def _write_field(field: MessageField, message: Any, value: Any, keys: MergeKeys, path: str) -> None:
    if field.cardinality is FieldCardinality.MAP:
        _write_map(field.kind, getattr(message, field.name), value or {})
    elif field.cardinality is FieldCardinality.LIST:
        elements = getattr(message, field.name)
        written = (
            _elements(field.kind, elements, value or [], keys, path) if field.is_message else value or []
        )
        del elements[:]
        elements.extend(written)
    elif value is None and (field.is_message or field.is_pointer):
        message.ClearField(field.name)
    elif not field.is_message:
        # kube-apiserver writes zeros explicitly.
        setattr(message, field.name, type(getattr(message, field.name))() if value is None else value)
    else:
        child = getattr(message, field.name)
        child.SetInParent()
        if field.kind == TIME:
            child.seconds, child.nanos = read_time(value, path), 0
        else:
            write_message(field.kind, child, value, keys, path)


def _write_map(kind: str, entries: Any, values: dict[str, str]) -> None:
    """Write a map of strings, or of quantities, which are messages with one string."""
    old = {read_text(entry.key): entry for entry in entries}
    count = len(entries)
    for key, value in values.items():
        entry = entries.add()
        if key in old:
            entry.CopyFrom(old[key])
        entry.key = key
        holder, name = (entry, "value") if kind == "s" else (entry.value, "string")
        if read_text(getattr(holder, name)) != value or key not in old:
            setattr(holder, name, value)
    del entries[:count]


def _elements(
    name: str, elements: Iterable[Any], documents: list[Json], keys: MergeKeys, path: str
) -> list[Any]:
    """Return a message for each document: the existing one with the same merge key (or, in lists without merge key,
    the same content), or a new one."""
    key = keys.get(path)
    old: dict[bytes, deque[Any]] = {}
    for item in elements:
        old.setdefault(_identity(read_message(name, item), key), deque()).append(item)
    written = []
    for document in documents:
        element = new_message(name)
        if sources := old.get(_identity(document, key)):
            element.CopyFrom(sources.popleft())
        write_message(name, element, document, keys, path)
        written.append(element)
    return written


def _identity(document: Json, key: str | None) -> bytes:
    """The value by which documents and existing elements are matched."""
    return orjson.dumps(document if key is None else document[key], option=orjson.OPT_SORT_KEYS)
