"""Converts a protobuf object to the JSON that kube-apiserver writes: names, times, quantities, omitted fields.

protobuf's own JSON mapping differs. The rules here are those of Go's encoding/json, and of the types with a
MarshalJSON in apimachinery and apiextensions-apiserver.
"""

from __future__ import annotations

import base64
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from kube.bounds import reached
from kube.json_type import Json
from kube.message_table import META, FieldCardinality, MessageField
from kube.schemas.published import messages
from kube.wire.json_fields import parse_json
from kube.wire.protobuf_codec import read_varint

type Read = Callable[[bytes, int, int, int], Any]
"""Reads a field's value from bytes, start, end and the remaining depth."""

_DOUBLE = struct.Struct("<d")
_EXACT = 1 << 53
"""Integers up to this are exact doubles, which Go writes without a decimal point."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _text(data: bytes, at: int, end: int, deep: int) -> str:
    return data[at:end].decode(errors="replace")


def _number(data: bytes, at: int, end: int, deep: int) -> int:
    number, _ = read_varint(data, at)
    return number - (1 << 64) if number >> 63 else number


def _flag(data: bytes, at: int, end: int, deep: int) -> bool:
    return data[at] != 0


def _double(data: bytes, at: int, end: int, deep: int) -> float:
    number: float = _DOUBLE.unpack_from(data, at)[0]
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number


def _base64(data: bytes, at: int, end: int, deep: int) -> str:
    return base64.b64encode(data[at:end]).decode()


SCALARS: Mapping[str, Read] = {"s": _text, "i": _number, "l": _number, "b": _flag, "d": _double, "y": _base64}
"""The reader of each scalar field type, by `kube.message_table.MessageField.kind`."""


def go_time(seconds: int, micros: int = 0, precision: str = "seconds") -> str:
    """RFC 3339 in UTC, as Go writes it; ValueError outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError as error:
        raise ValueError(f"no time: {error}") from error
    return moment.isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def _time(fields: Json) -> str | None:
    """A time; None for a zero time, which has no fields on the wire."""
    return go_time(fields.get("seconds", 0)) if fields else None


def _micro_time(fields: Json) -> str | None:
    micros = fields.get("nanos", 0) // 1000
    return go_time(fields.get("seconds", 0), micros, "microseconds") if fields else None


def _quantity(fields: Json) -> str:
    text: str = fields.get("string", "")
    return text or "0"


def _int_or_string(fields: Json) -> int | str:
    value: int | str = fields.get("strVal", "") if fields.get("type") else fields.get("intVal", 0)
    return value


def _raw_json(fields: Json) -> Any:
    raw = base64.b64decode(fields.get("raw") or fields.get("Raw") or "")
    return parse_json(raw) if raw else None


def _schema_or_bool(fields: Json) -> Any:
    return fields.get("schema", fields.get("allows", False))


def _schema_or_texts(fields: Json) -> Any:
    return fields.get("property") or fields.get("schema")


def _schema_or_list(fields: Json) -> Any:
    return fields.get("jSONSchemas") or fields.get("schema")


def _list(fields: Json) -> Any:
    """A Go slice with a named type."""
    return fields.get("items")


_CRD = "apiextensions_apiserver.pkg.apis.apiextensions"
WRITTEN: Mapping[str, Callable[[Json], Any]] = {
    f"{META}.Time": _time,
    f"{META}.MicroTime": _micro_time,
    f"{META}.FieldsV1": _raw_json,
    f"{META}.Verbs": _list,
    "apimachinery.pkg.api.resource.Quantity": _quantity,
    "apimachinery.pkg.runtime.RawExtension": _raw_json,
    "apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    **{
        f"{_CRD}.{version}.{name}": write
        for version in ("v1", "v1beta1")
        for name, write in {
            "JSON": _raw_json,
            "JSONSchemaPropsOrArray": _schema_or_list,
            "JSONSchemaPropsOrBool": _schema_or_bool,
            "JSONSchemaPropsOrStringArray": _schema_or_texts,
        }.items()
    },
    **{
        f"api.{group}.{version}.ExtraValue": _list
        for group in ("authentication", "authorization", "certificates")
        for version in ("v1", "v1beta1")
    },
}
"""By message name: converts a message with its own JSON form, from its fields by protobuf name."""


MAX_DEPTH = 100
"""The most levels of nested messages, as in protobuf's own parsers. The schema of a large CRD has some 40."""


def is_known(api_version: str, kind: str) -> bool:
    """True if there is a message of this kind."""
    return messages().of_kind(api_version, kind) is not None


def json_object(api_version: str, kind: str, raw: bytes) -> Json:
    """Convert the object in `raw`, a bare protobuf message, to JSON.

    LookupError for an unknown kind, ValueError if the bytes are malformed.
    """
    message = messages().of_kind(api_version, kind)
    if message is None:
        raise LookupError(f"{api_version} {kind} is not a built-in kind")
    return _object(api_version, kind, message.name, raw, for_people=False)


def shown_object(api_version: str, kind: str, raw: bytes) -> Json:
    """Convert as `json_object` does, for display: with unknown fields by number, and of an unknown kind the
    metadata."""
    message = messages().of_kind(api_version, kind)
    name = message.name if message is not None else f"{META}.PartialObjectMetadata"
    return _object(api_version, kind, name, raw, for_people=True)


def json_message(name: str, raw: bytes) -> Json:
    """Convert the message with this full name to JSON; ValueError if the bytes are malformed."""
    tree: Json = _reader(name, False).value(raw, 0, len(raw), MAX_DEPTH)
    return tree


def _object(api_version: str, kind: str, name: str, raw: bytes, *, for_people: bool) -> Json:
    tree: Json = _reader(name, for_people).value(raw, 0, len(raw), MAX_DEPTH)
    if (api_version, kind) == ("apps/v1", "StatefulSet"):
        # Protobuf has no field for the type of these (pkg/apis/apps/v1/conversion.go of Kubernetes).
        for claim in tree["spec"].get("volumeClaimTemplates") or ():
            claim |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    return {"kind": kind, "apiVersion": api_version, **tree}


TRUNCATED = "a field in protobuf is cut off"


class _Known(NamedTuple):
    """How to read a known field."""

    name: str
    cardinality: FieldCardinality
    read: Read
    hides_zero: bool


class _MessageReader:
    """Reads messages of one type."""

    __slots__ = ("_always", "_fields", "_for_people", "_write")

    def __init__(self, name: str, for_people: bool) -> None:
        message = messages().message(name)
        self._write = WRITTEN.get(name)
        self._for_people = for_people
        self._fields = {
            tag: _Known(field.name, field.cardinality, _read_of(field, for_people), field.hides_zero)
            for tag, field in message.fields.items()
        }
        self._always = () if self._write is not None else message.always

    def value(self, data: bytes, at: int, end: int, deep: int) -> Any:
        """Convert a message to JSON; ValueError if it is malformed."""
        tree: Json = {}
        unknown: defaultdict[int, list[tuple[bytes, int, int, int]]] = defaultdict(list)
        fields = self._fields
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = read_varint(data, at - 1)
            if tag & 7 == 2 and at < end and data[at] < 0x80:  # most fields: a length of one byte
                start = at + 1
                at = start + data[at]
                if at > end:
                    raise ValueError(TRUNCATED)
            else:
                start, at = _extent(data, at, end, tag & 7)
            field = fields.get(tag)
            if field is None:
                unknown[tag >> 3].append((data, start, at, tag & 7))
                continue
            name, cardinality, read, hides_zero = field
            value = read(data, start, at, deep)
            if cardinality is FieldCardinality.LIST:
                tree.setdefault(name, []).append(value)
            elif cardinality is FieldCardinality.MAP:
                tree.setdefault(name, {}).update(value)
            elif not name:
                tree |= value
            elif value or not hides_zero:
                tree[name] = value
        if self._write is not None:
            return self._write(tree)
        for absent in self._always:
            if absent.name not in tree:
                _add_absent(tree, absent, self._for_people)
        if unknown and self._for_people:
            tree |= {f"field {number}": _shown(values) for number, values in sorted(unknown.items())}
        return tree


@cache
def _reader(name: str, for_people: bool) -> _MessageReader:
    return _MessageReader(name, for_people)


def _extent(data: bytes, at: int, end: int, wire_type: int) -> tuple[int, int]:
    """The start and end of a field's value."""
    match wire_type:
        case 2:  # text, bytes and messages
            size, at = read_varint(data, at)
            stop = at + size
        case 0:
            stop = read_varint(data, at)[1]
        case 1:
            stop = at + 8
        case 5:
            stop = at + 4
        case _:
            raise ValueError(f"{wire_type} is no wire type of protobuf")
    if stop > end:
        raise ValueError(TRUNCATED)
    return at, stop


def _read_of(field: MessageField, for_people: bool) -> Read:
    read = _message_read(field.kind, for_people) if field.is_message else SCALARS[field.kind]
    return _map_read(field, read, for_people) if field.cardinality is FieldCardinality.MAP else read


def _message_read(name: str, for_people: bool) -> Read:
    def read(data: bytes, at: int, end: int, deep: int) -> Any:
        if not deep:
            reached("depth of an object")
            raise ValueError(f"messages are nested deeper than {MAX_DEPTH} levels")
        return _reader(name, for_people).value(data, at, end, deep - 1)

    return read


def _map_read(field: MessageField, read_value: Read, for_people: bool) -> Read:
    def read(data: bytes, at: int, end: int, deep: int) -> Any:
        key, value = "", None
        while at < end:
            tag, at = data[at], at + 1
            start, at = _extent(data, at, end, tag & 7)
            if tag >> 3 == 1:
                key = SCALARS["s"](data, start, at, deep)
            elif tag >> 3 == 2:
                value = read_value(data, start, at, deep)
        return {key: _zero(field, for_people) if value is None else value}

    return read


def _add_absent(tree: Json, field: MessageField, for_people: bool) -> None:
    """Add a field that is not on the wire, if JSON has it."""
    if field.cardinality is not FieldCardinality.ONE or field.is_pointer or field.kind == "y":
        tree[field.name] = None
    elif field.name:
        tree[field.name] = _zero(field, for_people)
    else:
        tree |= {name: value for name, value in _zero(field, for_people).items() if name not in tree}


def _zero(field: MessageField, for_people: bool) -> Any:
    if field.is_message:
        return _reader(field.kind, for_people).value(b"", 0, 0, MAX_DEPTH)
    return {"s": "", "b": False, "y": ""}.get(field.kind, 0)


def _shown(values: list[tuple[bytes, int, int, int]]) -> Any:
    """An unknown field for display: a number, or the size of a length-delimited value, which may be secret."""
    if all(wire_type == 2 for *_, wire_type in values):
        times = f"{len(values)} times, " if len(values) > 1 else ""
        return f"({times}{sum(end - start for _, start, end, _ in values)} bytes)"
    shown = [read_varint(data, start)[0] if not wire_type else "?" for data, start, _, wire_type in values]
    return shown[0] if len(shown) == 1 else shown
