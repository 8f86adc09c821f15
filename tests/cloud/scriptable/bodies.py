"""Request bodies: the formats of a write, and the fields by which a body must match the object of the path."""

from __future__ import annotations

import json
from typing import Any

import orjson
import yaml

from kube.errors import StatusError, bad_request, entity_too_large, unsupported_media_type
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.cloud.scriptable.patches import PatchType
from tests.cloud.scriptable.protobuf import decode_body
from tests.cloud.scriptable.resources import Resource, Trait

LIMIT = 3 * 1024 * 1024
"""Bytes of a body that a kube-apiserver takes."""
YAML = "application/yaml"
_FORMATS = ("application/json", YAML, str(Encoding.PROTOBUF))
_PATCHES = (str(PatchType.JSON), str(PatchType.MERGE), "application/apply-patch+yaml")
"""What a custom resource takes, in the words of the refusal."""


def check_size(body: bytes) -> None:
    """StatusError 413 for what is too large."""
    if len(body) > LIMIT:
        raise entity_too_large(f"limit is {LIMIT}")


def parse_object(resource: Resource, content_type: str, body: bytes) -> Json:
    """The object in the body of a create or update, with apiVersion, kind and metadata; StatusError 400 or 415."""
    value = _parse(
        content_type, body, f"the object provided is unrecognized (must be of type {resource.kind}): "
    )
    if Trait.CUSTOM in resource.traits and not value.get("kind"):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing in "
            f"'{_quoted(body)}'"
        )
    value.setdefault("apiVersion", resource.api_version)
    value.setdefault("kind", resource.kind)
    said = f'{value["kind"]} in version "{value["apiVersion"]}"'
    if (value["apiVersion"], value["kind"]) != (resource.api_version, resource.kind):
        if Trait.CUSTOM in resource.traits:
            raise bad_request(
                f"the API version in the data ({value['apiVersion']}) does not match the expected API version "
                f"({resource.api_version})"
            )
        raise bad_request(f"{said} cannot be handled as a {resource.kind}: unknown conversion")
    metadata = value.setdefault("metadata", {})
    if metadata is None:
        value["metadata"] = metadata = {}
    if not isinstance(metadata, dict):
        raise bad_request(
            f"{said} cannot be handled as a {resource.kind}: json: cannot unmarshal into Go struct field "
            f"{resource.kind}.metadata of type v1.ObjectMeta"
        )
    return value


def parse_delete_options(content_type: str, body: bytes) -> Json:
    """DeleteOptions; nothing where there is no body. Those in protobuf are taken for empty: the schema has them not."""
    if not body or media_type(content_type) == Encoding.PROTOBUF:
        return {}
    return _parse(content_type, body, "")


def parse_patch(resource: Resource, content_type: str, body: bytes) -> tuple[PatchType, Any]:
    """The patch and its type; StatusError 400 for what is no JSON, 415 for a type that the resource does not take."""
    try:
        patch_type = PatchType(media_type(content_type))
    except ValueError:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type") from None
    if patch_type is PatchType.STRATEGIC and Trait.CUSTOM in resource.traits:
        raise _unknown_format(_PATCHES)
    try:
        return patch_type, orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def media_type(content_type: str) -> str:
    """Without parameters; JSON where none is given."""
    return content_type.partition(";")[0].strip() or "application/json"


def _parse(content_type: str, body: bytes, complaint: str) -> Json:
    format_ = media_type(content_type)
    if format_ not in _FORMATS:
        raise _unknown_format(_FORMATS)
    try:
        if format_ == Encoding.PROTOBUF:
            return decode_body(body)
        value = yaml.safe_load(body) if format_ == YAML else json.loads(body)
        if not isinstance(value, dict):
            raise ValueError(f"cannot unmarshal {type(value).__name__}")
    except (ValueError, yaml.YAMLError) as error:
        raise bad_request(
            f"{complaint}couldn't get version/kind; json parse error: {error} ({_quoted(body)})"
        ) from error
    return value


def _unknown_format(formats: tuple[str, ...]) -> StatusError:
    accepted = ", ".join(formats)
    return unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def _quoted(body: bytes) -> str:
    return body[:256].decode(errors="replace") or "<empty>"
