"""The JSON of single values: protobuf's scalars, and the Go types with a MarshalJSON."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kube.json_type import Json
from kube.schemas.message_table import META
from kube.wire.json_fields import parse_json
from kube.wire.protobuf_codec import read_varint

type Read = Callable[[bytes, int, int, int], Any]
"""The value of a field, of its bytes and where they begin and end. The last number is how deep it may still be."""

_DOUBLE = struct.Struct("<d")
_EXACT = 1 << 53
"""Up to this every integer is an exact double, which Go writes without a decimal point."""
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
"""Each kind of field that is no message; `kube.schemas.message_table.MessageField.kind` says which is which."""


def go_time(seconds: int, micros: int = 0, precision: str = "seconds") -> str:
    """RFC 3339 in UTC, as Go writes it; ValueError outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=micros)
    except OverflowError as error:
        raise ValueError(f"no time: {error}") from error
    return moment.isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def _time(fields: Json) -> str | None:
    """A zero time has no fields on the wire."""
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
    """A named type of Go that is a slice."""
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
"""The JSON of a message of that full name, of its fields by their names in protobuf."""
