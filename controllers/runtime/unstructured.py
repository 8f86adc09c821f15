"""Readers for JSON objects that any client may have written. A field of the wrong type counts as absent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from kube.json_type import Json


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def copied(value: Any) -> Any:
    """Copy a JSON value deeply, ten times as fast as `copy.deepcopy`."""
    return orjson.loads(orjson.dumps(value))


def parsed_note(note: str | bytes) -> Json:
    """Parse the JSON object in an annotation; an empty one if there is none."""
    try:
        return mapping(orjson.loads(note))
    except orjson.JSONDecodeError:
        return {}


def texts(value: object) -> dict[str, str]:
    """Return the string members of an object, such as labels or annotations."""
    return {key: text for key, text in mapping(value).items() if isinstance(text, str)}


def objects(value: object) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def number(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def metadata(obj: Json) -> Json:
    return mapping(obj.get("metadata"))


def timestamp(moment: datetime) -> str:
    """Format a time as metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
