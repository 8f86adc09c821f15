"""Request bodies: the formats of a write, and the fields by which a body must match the object of the path."""

from __future__ import annotations

from typing import Any

import orjson

from kube.errors import StatusError, bad_request, unsupported_media_type
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.scriptable.patches import PatchType
from tests.cloud.scriptable.protobuf import decode_body
from tests.cloud.scriptable.resources import Resource

_FORMATS = ("application/json", str(Encoding.PROTOBUF))


def parse_object(resource: Resource, content_type: str, body: bytes) -> Json:
    """Return the object in the body of a create or update, with apiVersion, kind and metadata; StatusError 400 or
    415."""
    value = _parse(
        content_type, body, f"the object provided is unrecognized (must be of type {resource.kind}): "
    )
    value.setdefault("apiVersion", resource.api_version)
    value.setdefault("kind", resource.kind)
    value.setdefault("metadata", {})
    return value


def parse_delete_options(content_type: str, body: bytes) -> Json:
    """Parse DeleteOptions; empty ones without a body, and for protobuf, which the schema lacks."""
    if not body or media_type(content_type) == Encoding.PROTOBUF:
        return {}
    return _parse(content_type, body, "")


def parse_patch(content_type: str, body: bytes) -> tuple[PatchType, Any]:
    """Parse a patch; StatusError 400 for invalid JSON, 415 for another type."""
    try:
        patch_type = PatchType(media_type(content_type))
    except ValueError:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type") from None
    try:
        return patch_type, orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def media_type(content_type: str) -> str:
    """Return the media type without parameters; JSON if there is none."""
    return content_type.partition(";")[0].strip() or "application/json"


def _parse(content_type: str, body: bytes, complaint: str) -> Json:
    format_ = media_type(content_type)
    if format_ not in _FORMATS:
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(_FORMATS)
        )
    try:
        if format_ == Encoding.PROTOBUF:
            return decode_body(body)
        value = orjson.loads(body)
        if not isinstance(value, dict):
            raise ValueError(f"cannot unmarshal {type(value).__name__}")
    except ValueError as error:
        raise bad_request(
            f"{complaint}couldn't get version/kind; json parse error: {error} ({_quoted(body)})"
        ) from error
    return value


def _quoted(body: bytes) -> str:
    return body[:256].decode(errors="replace") or "<empty>"
