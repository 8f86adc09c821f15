"""Reads JSON objects: fields without a schema, whose types are checked when read; and the metadata of a text that a
store needs."""

import codecs
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec
import orjson

from kube.packed_text import PackedText, StoredText
from kube.requests.resource_versions import parse_version
from kube.wire.codec_base import ObjectPeek
from kube.wire.fields import Edits, Fields

type JsonObject = dict[str, object]

LONG_OBJECT = 128 * 1024
"""From this number of bytes on, managedFields stay unparsed. For 20,000 labels they became 60,000 Python objects, 4 MB
until the event was handled, and fragmented the heap."""
CHUNK = 1024 * 1024
"""Bytes that are checked at a time: decoded to characters they may take four times as much memory."""
_TYPE = re.compile(rb'\{"kind":"\w{1,128}","apiVersion":"[\w./-]{1,255}",')
_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TooDeep(ValueError):
    """A JSON text is nested too deep: over 1,500 levels in Python 3.12, almost 10,000 in later versions.

    kube-apiserver accepts 10,000.
    """


def read_json[T](decoder: "msgspec.json.Decoder[T]", text: bytes | memoryview | msgspec.Raw) -> T:
    """Decode by `decoder`; ValueError if the text does not fit, including TooDeep.

    Text that stays `msgspec.Raw` is valid JSON, except that it may not be UTF-8, and may have numbers beyond a double.
    """
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise TooDeep(f"cannot be read as JSON: {error}") from None


def check_utf8(text: bytes) -> None:
    """Raise ValueError if a text is not UTF-8."""
    if not text.isascii():
        pieces = (text[begin : begin + CHUNK] for begin in range(0, len(text), CHUNK))
        deque(codecs.iterdecode(pieces, "utf-8"), maxlen=0)


def parse_object(text: bytes | memoryview) -> JsonObject:
    """Parse the JSON object in `text`; ValueError if it is none."""
    value = parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def parse_json(text: bytes | memoryview | msgspec.Raw) -> object:
    """Parse a JSON text; ValueError if it is malformed, including TooDeep."""
    return read_json(_ANY, text)


def parse_object_lazily(text: bytes) -> JsonObject:
    """Parse as `parse_object` does, but leave the managedFields of a long object unparsed, for callers that only write
    them again."""
    if len(text) < LONG_OBJECT:
        return parse_object(text)
    check_utf8(text)
    return {
        name: _parse_metadata(value) if name == "metadata" else parse_json(value)
        for name, value in raw_fields(text).items()
    }


def raw_fields(text: bytes | memoryview | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Split a JSON object into its unparsed fields; ValueError if it is none."""
    return read_json(_RAW_FIELDS, text)


def first_byte(raw: msgspec.Raw) -> bytes:
    """The first character, which determines a value's type."""
    return bytes(memoryview(raw)[:1])


def _parse_metadata(raw: msgspec.Raw) -> object:
    if first_byte(raw) != b"{":
        return parse_json(raw)
    return {
        name: value if name == "managedFields" and first_byte(value) == b"[" else parse_json(value)
        for name, value in raw_fields(raw).items()
    }


def write_json(value: object) -> bytes:
    """Serialize a parsed value as compact JSON; ValueError if it cannot be serialized."""
    try:
        return msgspec.json.encode(value)
    except (RecursionError, TypeError, OverflowError) as error:
        raise ValueError(f"cannot be written as JSON: {error}") from None


def write_shallow(value: object) -> bytes:
    """Serialize as `write_json` does; ValueError also for nesting beyond orjson's 254 levels, too deep for
    recursion."""
    try:
        return orjson.dumps(value)
    except TypeError as error:  # orjson.JSONEncodeError
        raise ValueError(f"cannot be written as JSON: {error}") from error


def is_on_one_line(text: bytes) -> bool:
    """True if a text has no line break except one at its end."""
    return text.find(b"\n", 0, -1) < 0 and b"\r" not in text


def on_one_line(text: bytes) -> bytes:
    """Format a text for one line of a watch: an indented text loses its blanks."""
    if is_on_one_line(text):
        return text
    try:
        return msgspec.json.format(text, indent=-1)
    except RecursionError as error:
        raise TooDeep(f"cannot be read as JSON: {error}") from None


def size_of_type(item: StoredText) -> int:
    """Bytes of the kind and apiVersion at the beginning of an object, as Go writes them. A list repeats both for all
    items.

    0 for a custom resource: in a list, each item has both, with apiVersion first because the fields are sorted.
    """
    if isinstance(item, PackedText):
        return item.type_size
    match = _TYPE.match(item)
    return len(match[0]) - 1 if match is not None else 0


def join_without_types(items: Sequence[bytes]) -> bytes:
    return b",".join(b"{" + item[size + 1 :] if (size := size_of_type(item)) else item for item in items)


_ANY: msgspec.json.Decoder[object] = msgspec.json.Decoder()


class JsonFields(Fields):
    """A JSON object. An absent one is added to its parent on its first write."""

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
        # The predicate is called only for objects; other values stay.
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
        """Return the object for writing: add it to its parent if absent, and record the edit."""
        if self._parent is not None:
            siblings = self._parent._writable()
            # Another Fields of the same absent child may have been written first.
            if not isinstance(siblings.get(self._name), dict):
                siblings[self._name] = self._object
            self._object = cast(JsonObject, siblings[self._name])
            self._parent = None
        self._edits.made = True
        return self._object


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata of an object."""

    namespace: str | None = None
    name: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None

    @property
    def peek(self) -> ObjectPeek:
        """The peek of the object, as from `Codec.peek`."""
        version = parse_version(self.resource_version or "")
        return ObjectPeek(self.namespace or "", self.name or "", version, self.labels or {})


class Described(msgspec.Struct, rename="camel", gc=False):
    """An object's type and metadata; the rest of its text is skipped."""

    api_version: str | None = None
    kind: str | None = None
    metadata: Metadata | None = None

    @property
    def type(self) -> tuple[str, str]:
        """The object's apiVersion and kind; ValueError if one is missing."""
        if self.api_version is None or self.kind is None:
            raise ValueError("an object must have apiVersion and kind")
        return self.api_version, self.kind

    @property
    def peek(self) -> ObjectPeek:
        """The peek of the object, as from `Codec.peek`."""
        return (self.metadata or Metadata()).peek


def described(raw: bytes) -> Described:
    """Parse the type and metadata of an object; ValueError if the text is not a JSON object."""
    try:
        return read_json(_DESCRIBED, raw)
    except ValueError:
        # It is malformed, or a value has an unexpected type, which counts as absent.
        fields = JsonFields(parse_object_lazily(raw), Edits())
    metadata = fields.child("metadata")
    return Described(
        fields.text("apiVersion") if fields.has("apiVersion") else None,
        fields.text("kind") if fields.has("kind") else None,
        Metadata(
            metadata.text("namespace"),
            metadata.text("name"),
            metadata.text("resourceVersion"),
            metadata.mapping("labels"),
        ),
    )


_DESCRIBED = msgspec.json.Decoder(Described)
