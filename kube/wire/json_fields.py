"""Fields over a parsed JSON object: no schema, so any name may be written, and every value is checked when read."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import cast

import orjson

from kube.packed_text import Kept, PackedText
from kube.wire.fields import Edits, Fields

type JsonObject = dict[str, object]

MAX_DEEP = 2 * 1024 * 1024
"""Bytes of a deeply nested text for Python's own parser, which stops the event loop for some 30 ms. etcd takes objects
of 1.5 MiB."""
LONG_OBJECT = 128 * 1024
"""The managedFields of texts of at least so many bytes stay unparsed. For 20,000 labels they were 60,000 Python
objects, 4 MB until the event was handled, and that part of the heap was fragmented afterwards."""
DEEPEST = 16
"""Levels of objects in managedFields that stay unparsed; a pod's have ten."""
PLACEHOLDER = "managedFields that stay text"
_PLACEHOLDER = PLACEHOLDER.encode()
_TOO_DEEP = re.compile("depth (limit )?exceeded")
_TOO_DEEP_TO_WRITE = "Recursion limit reached"
"""The messages of orjson's versions for a value that is nested too deep."""
_TEXT = rb'"[ !#-\[\]-~]*+(?:\\["\\bfnrt][ !#-\[\]-~]*+)*+"'
_TYPE = re.compile(rb'\{"kind":"\w{1,128}","apiVersion":"[\w./-]{1,255}",')


def parse_object(text: bytes | memoryview) -> JsonObject:
    """The JSON object in `text`; raises ValueError when it is none."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def parse_object_lazily(text: bytes | memoryview) -> JsonObject:
    """Like `parse_object`, but the managedFields of a long object stay text, for callers that only write them again."""
    value = parse_json_lazily(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def parse_json_lazily(text: bytes | memoryview) -> object:
    """Like `parse_json`, but the managedFields of a long object stay text."""
    if (cut := _cut_managed(text)) is not None:
        with contextlib.suppress(ValueError):
            value = parse_json(cut[0])
            if _put_back(value, cut[1]):
                return value
    return parse_json(text)


def parse_json(text: bytes | memoryview) -> object:
    """The value of a JSON text; ValueError when it is none.

    orjson refuses 1,024 levels, and a kube-apiserver takes 10,000. One such object must not make its whole list
    unreadable, so Python's own parser, ten times as slow, reads deeper texts. TooDeep where it fails too: at 1,500
    levels in Python 3.12, shortly before 10,000 in later versions.
    """
    try:
        return cast(object, orjson.loads(text))
    except ValueError as error:
        if not _TOO_DEEP.search(str(error)):
            raise
    if len(text) > MAX_DEEP:
        raise TooDeep(f"over {MAX_DEEP} bytes of JSON are nested over 1,024 levels")
    try:
        return cast(object, json.loads(str(text, "utf-8"), parse_constant=_refuse_constant))
    except RecursionError as error:
        raise TooDeep(f"cannot be read as JSON: {error}") from None


class ManagedText:
    """The managedFields of an object, as they were written: valid JSON, without blanks."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


def _cut_managed(text: bytes | memoryview) -> tuple[bytes, ManagedText] | None:
    """A long JSON text with PLACEHOLDER instead of its first long managedFields, and these; None where it has none.

    Only managedFields as a kube-apiserver writes them are cut out: compact ASCII JSON, a list of objects of strings and
    objects. Where the text with PLACEHOLDER is valid JSON, so is the whole text.
    """
    if len(text) < LONG_OBJECT:
        return None
    found = next((match for match in _managed().finditer(text) if len(match[1]) >= LONG_OBJECT // 2), None)
    if found is None:
        return None
    begin, end = found.span(1)
    rest = b'"'.join((text[:begin], _PLACEHOLDER, text[end:]))
    return (rest, ManagedText(found[1])) if rest.count(_PLACEHOLDER) == 1 else None


def _put_back(value: object, managed: ManagedText) -> bool:
    """Put managedFields back into a parsed object, event or list; False where it has no PLACEHOLDER."""
    for candidate in _objects(value):
        metadata = candidate.get("metadata") if isinstance(candidate, dict) else None
        if isinstance(metadata, dict) and metadata.get("managedFields") == PLACEHOLDER:
            metadata["managedFields"] = managed
            return True
    return False


def _objects(value: object) -> Iterator[object]:
    """The values that may be Kubernetes objects: `value` itself, the object of an event, or the items of a list."""
    items = value[0] if isinstance(value, list) and value else None
    if isinstance(value, dict):
        yield from (value, value.get("object"))
        items = value.get("items")
    if isinstance(items, list):
        yield from items


@cache
def _managed() -> re.Pattern[bytes]:
    members = rb"(?:%b(?:,(?=\")|(?=\})))*+"
    one = rb"\{" + members % (_TEXT + b":" + _TEXT) + rb"\}"
    for _ in range(DEEPEST):
        one = rb"\{" + members % (_TEXT + b":(?:" + _TEXT + b"|" + one + b")") + rb"\}"
    return re.compile(rb'"managedFields":(\[(?:' + one + rb"(?:,(?=\{)|(?=\])))*+\])")


def write_json(value: object) -> bytes:
    """Compact JSON of a parsed value; ValueError where it cannot be written."""
    try:
        return write_shallow(value)
    except ValueError as error:
        if _TOO_DEEP_TO_WRITE not in str(error):
            raise
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_parsed).encode()
    except RecursionError as error:
        raise ValueError(f"cannot be written as JSON: {error}") from None


def write_shallow(value: object) -> bytes:
    """Like `write_json`, but ValueError also where the value is nested over orjson's 254 levels, too deep to walk."""
    try:
        # A store keeps these bytes. Copy them out of orjson's buffer, which may be ten times as large.
        return bytes(memoryview(orjson.dumps(value, _as_it_is)))
    except TypeError as error:  # orjson.JSONEncodeError
        raise ValueError(f"cannot be written as JSON: {error}") from error


def _as_it_is(value: object) -> orjson.Fragment:
    if isinstance(value, ManagedText):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _parsed(value: object) -> object:
    if isinstance(value, ManagedText):
        return parse_json(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


class TooDeep(ValueError):
    """A JSON text that is nested too deep for both parsers."""


def size_of_type(item: Kept) -> int:
    """Bytes of the kind and apiVersion at the beginning of an object, as Go writes them. Its list has both, too.

    0 for a custom resource, which has both in each item of a list, apiVersion first because its fields are sorted.
    """
    if isinstance(item, PackedText):
        return item.type_size
    match = _TYPE.match(item)
    return len(match[0]) - 1 if match is not None else 0


def join_without_types(items: Sequence[bytes]) -> bytes:
    return b",".join(b"{" + item[size + 1 :] if (size := size_of_type(item)) else item for item in items)


class JsonFields(Fields):
    """A JSON object. An absent one is put into its parent when it is first written to."""

    __slots__ = ("_edits", "_name", "_object", "_parent")

    def __init__(
        self, json_object: JsonObject, edits: Edits, parent: "JsonFields | None" = None, name: str = ""
    ) -> None:
        self._object = json_object
        self._edits = edits
        self._parent = parent
        self._name = name

    def text(self, name: str) -> str:
        value = self._object.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self._object.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def flag(self, name: str) -> bool | None:
        value = self._object.get(name)
        return value if isinstance(value, bool) else None

    def texts(self, name: str) -> list[str]:
        return [value for value in self._list(name) if isinstance(value, str)]

    def mapping(self, name: str) -> dict[str, str]:
        values = self._object.get(name)
        if not isinstance(values, dict):
            return {}
        return {key: value for key, value in values.items() if isinstance(value, str)}

    def child(self, name: str) -> "JsonFields":
        value = self._object.get(name)
        if isinstance(value, dict):
            return JsonFields(value, self._edits)
        return JsonFields({}, self._edits, self, name)

    def children(self, name: str) -> list[Fields]:
        return [JsonFields(value, self._edits) for value in self._list(name) if isinstance(value, dict)]

    def count(self, name: str) -> int:
        return len(self._list(name))

    def has(self, name: str) -> bool:
        value = self._object.get(name)
        return value is False or bool(value)

    def set(self, name: str, value: str | int | bool) -> None:
        self._writable()[name] = value

    def set_texts(self, name: str, values: Sequence[str]) -> None:
        self._writable()[name] = list(values)

    def set_mapping(self, name: str, values: Mapping[str, str]) -> None:
        if values:
            self._writable()[name] = dict(values)
        else:
            self.clear(name)

    def keep(self, name: str, predicate: Callable[[Fields], bool]) -> int:
        values = self._list(name)
        # The predicate is asked about objects only; other values stay.
        remaining = [v for v in values if not isinstance(v, dict) or predicate(JsonFields(v, self._edits))]
        removed = len(values) - len(remaining)
        if removed:
            self._writable()[name] = remaining
        return removed

    def add(self, name: str) -> "JsonFields":
        added: JsonObject = {}
        values = self._list(name)
        values.append(added)
        self._writable()[name] = values
        return JsonFields(added, self._edits)

    def clear(self, name: str) -> None:
        if name in self._object:
            del self._writable()[name]

    def encode(self) -> bytes:
        return write_json(self._object)

    def _list(self, name: str) -> list[object]:
        values = self._object.get(name)
        return values if isinstance(values, list) else []

    def _writable(self) -> JsonObject:
        """The object, put into its parent if it was not there, and noted as written."""
        if self._parent is not None:
            siblings = self._parent._writable()
            # Another Fields of the same absent child may have been written to first.
            if not isinstance(siblings.get(self._name), dict):
                siblings[self._name] = self._object
            self._object = cast(JsonObject, siblings[self._name])
            self._parent = None
        self._edits.made = True
        return self._object
