"""Patches of parsed JSON objects: JSON patch, merge patch and strategic merge patch, as a kube-apiserver does."""

from typing import Any

import orjson

from kube.errors import StatusError, bad_request, invalid, unsupported_media_type
from kube.json_type import Json
from kube.objects.json_patch import apply_json_patch
from kube.objects.merge_keys import merge_keys_of
from kube.objects.strategic_diff import strategic_diff
from kube.objects.strategic_merge import strategic_merge
from kube.wire.json_fields import write_shallow

__all__ = ["JSON_PATCH", "MERGE_PATCH", "STRATEGIC_MERGE_PATCH", "apply_patch", "strategic_diff"]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"


def apply_patch(content_type: str, document: Json, patch: bytes, kind: str) -> Json:
    """The patched object; the given one stays as it is, and the two may share parts.

    `content_type` is the header's value. StatusError 400 for a malformed patch, 413 and 422 for one that is too large
    or does not apply, 415 for another type, also for server-side apply.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == JSON_PATCH:
        return _an_object(apply_json_patch(document, _parsed(patch)))
    if media_type == MERGE_PATCH:
        return merge_patch(document, _object_of(patch))
    if media_type == STRATEGIC_MERGE_PATCH:
        return strategic_merge(document, _object_of(patch), merge_keys_of(kind))
    accepted = ", ".join((JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH))
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def merge_patch(document: Json, patch: Json) -> Json:
    """RFC 7386 for two objects. As in the server, objects inside of an array lose their nulls."""
    merged = dict(document)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            old = merged.get(name)
            merged[name] = merge_patch(old if isinstance(old, dict) else {}, value)
        else:
            merged[name] = _without_nulls(value)
    return merged


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(field) for name, field in value.items() if field is not None}
    return [_without_nulls(element) for element in value] if isinstance(value, list) else value


def _parsed(patch: bytes) -> Any:
    try:
        parsed = orjson.loads(patch)
        write_shallow(parsed)  # refuses a document that is nested too deep to walk
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    return parsed


def _object_of(patch: bytes) -> Json:
    parsed = _parsed(patch)
    if not isinstance(parsed, dict):
        raise bad_request("error decoding patch: not a JSON object")
    return parsed


def _an_object(patched: Any) -> Json:
    try:
        write_shallow(patched)
    except ValueError as error:
        raise _no_object(str(error)) from error
    if not isinstance(patched, dict):
        raise _no_object("it leaves no object")
    return patched


def _no_object(why: str) -> StatusError:
    return invalid(f"the server rejected our request due to an error in our request: {why}")
