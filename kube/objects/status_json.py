"""The JSON of a Node's and a Pod's status, as a kube-apiserver would send it: values have the API's types, and empty
fields are there or not as in the server's JSON.
"""

import re
from datetime import UTC, datetime
from typing import Any

from kube.json_type import Json
from kube.objects.status_schema import MAPS, TIME, Shown, StatusField, status_table
from kube.schemas.written_types import go_time
from kube.wire.schema import ENTRY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_ZEROS: dict[str, Any] = {"string": "", "int32": 0, "int64": 0, "bool": False}
_LIMITS = {"int32": 2**31, "int64": 2**63}


def canonical(message: str, document: object, path: str = "") -> Json:
    """The JSON of a message of the table; ValueError where a value is not of the field's type.

    Fields that the table does not have are a newer server's, and stay as they are.
    """
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ValueError(f"{path or message}: expected an object, got {_text_of(document)}")
    fields = status_table()[message]
    result: Json = {}
    for name, field in fields.items():
        value = _canonical_field(field, document.get(name), f"{path}.{name}" if path else name)
        is_zero = value is None if field.shown is Shown.PRESENT else value in (None, "", 0, [], {})
        if field.shown is Shown.ALWAYS or not is_zero:
            result[name] = value
    return result | {
        name: value for name, value in document.items() if name not in fields and value is not None
    }


def _canonical_field(field: StatusField, value: Any, path: str) -> Any:
    if field.kind in MAPS:
        return _canonical_map(field.kind, value, path)
    if not field.many:
        return _canonical_value(field, value, path)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list, got {_text_of(value)}")
    element = field._replace(many=False, shown=Shown.ALWAYS)
    return [_canonical_value(element, item, f"{path}[{place}]") for place, item in enumerate(value)]


def _canonical_value(field: StatusField, value: Any, path: str) -> Any:
    if field.kind == TIME:
        return None if value is None else go_time(read_time(value, path))
    if value is None and field.shown is Shown.PRESENT:
        return None
    if field.kind not in _ZEROS:
        return canonical(field.kind, value, path)
    return _ZEROS[field.kind] if value is None else _scalar(field.kind, value, path)


def _scalar(kind: str, value: Any, path: str) -> Any:
    if type(value) is not type(_ZEROS[kind]):
        raise ValueError(f"{path}: expected {kind}, got {_text_of(value)}")
    if kind in _LIMITS and not -_LIMITS[kind] <= value < _LIMITS[kind]:
        raise ValueError(f"{path}: {value} is no {kind}")
    return value


def _canonical_map(kind: str, value: Any, path: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a map, got {_text_of(value)}")
    read = _text if kind == ENTRY else _quantity
    return {key: read(value[key], f"{path}[{key}]") for key in sorted(value)}


def _text(value: Any, path: str) -> str:
    text: str = _scalar("string", "" if value is None else value, path)
    return text


def _quantity(value: Any, path: str) -> str:
    """A quantity as text. A number becomes its text, as in the server."""
    text = (
        str(value) if isinstance(value, int | float) and not isinstance(value, bool) else _text(value, path)
    )
    if not text:
        return "0"
    if not _QUANTITY.fullmatch(text):
        raise ValueError(f"{path}: {_text_of(value)} is no quantity")
    return text


def read_time(value: object, path: str) -> int:
    """Seconds since 1970 of an RFC 3339 text; fractions are cut off, as the API's JSON does."""
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
