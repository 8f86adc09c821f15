"""Applies JSON patch (RFC 6902), merge patch and strategic merge patch to parsed JSON, as kube-apiserver does.

Unlike the RFC, kube-apiserver lets `replace` name a missing member, and counts negative indices from the end.
"""

import copy
from typing import Any

import orjson

from kube.errors import StatusError, bad_request, entity_too_large, invalid, unsupported_media_type
from kube.json_type import Json, same_json
from kube.objects.strategic_merge import merge_keys_of, strategic_merge
from kube.requests.quoting import quoted
from kube.wire.json_fields import write_shallow

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

MAX_OPERATIONS = 10_000
"""The most operations in one patch (apiserver, maxJSONPatchOperations)."""
MAX_COPIED = 3 * 1024 * 1024
"""The most bytes that the `copy` operations of a patch may add (apiserver, JSONPatchMaxCopyBytes)."""


def apply_patch(content_type: str, document: Json, patch: bytes, kind: str) -> Json:
    """Return the patched object. The input is not changed, and the two may share parts.

    `content_type` is the header's value. StatusError 400 for a malformed patch, 413 and 422 for one that is too large
    or does not apply, 415 for another type, including server-side apply.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == JSON_PATCH:
        return _require_object(apply_json_patch(document, _parsed(patch)))
    if media_type == MERGE_PATCH:
        return merge_patch(document, _object_of(patch))
    if media_type == STRATEGIC_MERGE_PATCH:
        return strategic_merge(document, _object_of(patch), merge_keys_of(kind))
    accepted = ", ".join((JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH))
    raise unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


def merge_patch(document: Json, patch: Json) -> Json:
    """Apply RFC 7386 to two objects. As in kube-apiserver, objects inside arrays lose their nulls."""
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


def _require_object(patched: Any) -> Json:
    try:
        write_shallow(patched)
    except ValueError as error:
        raise _refused(str(error)) from error
    if not isinstance(patched, dict):
        raise _refused("it leaves no object")
    return patched


def apply_json_patch(document: Json, operations: object) -> Any:
    """Return the document after the operations. The input is not changed.

    StatusError 400 for a malformed patch, 413 for too many operations, 422 for one that does not apply.
    """
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("error decoding patch: a JSON patch is an array of operations")
    if len(operations) > MAX_OPERATIONS:
        raise entity_too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    patching = JsonPatching(copy.deepcopy(document))
    for operation in operations:
        patching.apply(operation)
    return patching.document


class JsonPatching:
    """Applies operations one by one to `document`, in place."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._copied = 0

    def apply(self, operation: Json) -> None:
        """Apply one operation. StatusError 422 if it does not apply; then the document is unchanged, except after a
        `move`."""
        kind, path = operation.get("op"), _parts(operation, "path")
        match kind:
            case "add":
                self._put(path, operation.get("value"), inserts=True)
            case "remove":
                self._remove(path)
            case "replace":
                self._put(path, operation.get("value"), inserts=False)
            case "test":
                if not same_json(self._get(path), operation.get("value")):
                    raise _refused(f"testing value {operation['path']} failed")
            case "move":
                source = _parts(operation, "from")
                value = self._get(source)
                self._remove(source)
                self._put(path, value, inserts=True)
            case "copy":
                self._put(path, self._copy(self._get(_parts(operation, "from"))), inserts=True)
            case _:
                raise _refused(f"unexpected kind: {kind}")

    def _copy(self, value: Any) -> Any:
        try:
            self._copied += len(write_shallow(value))
        except ValueError as error:
            raise _refused(str(error)) from error
        if self._copied > MAX_COPIED:
            raise _refused(f"copies of {self._copied} bytes are over the limit of {MAX_COPIED}")
        return copy.deepcopy(value)

    def _get(self, path: list[str]) -> Any:
        if not path:
            return self.document
        container, part = self._container(path), path[-1]
        if isinstance(container, dict):
            return container.get(part)
        return container[_index(part, len(container))]

    def _put(self, path: list[str], value: Any, *, inserts: bool) -> None:
        if not path:
            self.document = value
            return
        container, part = self._container(path), path[-1]
        size = len(container)
        if isinstance(container, dict):
            container[part] = value
        elif inserts:
            container.insert(size if part == "-" else _index(part, size + 1), value)
        else:
            container[_index(part, size)] = value

    def _remove(self, path: list[str]) -> None:
        container, part = self._container(path), path[-1] if path else ""
        if isinstance(container, list):
            del container[_index(part, len(container))]
        elif part in container:
            del container[part]
        else:
            raise _refused(f"unable to remove nonexistent key: {part}")

    def _container(self, path: list[str]) -> Any:
        """The object or array that contains the value at a path."""
        value = self.document
        for part in path[:-1]:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list):
                value = value[_index(part, len(value))]
        if not path or not isinstance(value, dict | list):
            raise _refused(f"the document is missing the path /{'/'.join(path)}")
        return value


def _parts(operation: Json, name: str) -> list[str]:
    """The unescaped parts of a JSON pointer."""
    pointer = operation.get(name)
    if not isinstance(pointer, str):
        raise _refused(f"an operation has no {name}")
    if pointer and not pointer.startswith("/"):
        raise _refused(f"{quoted(pointer)} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _index(part: str, size: int) -> int:
    """Parse an array index in a JSON pointer, for an array of this size."""
    digits = part.removeprefix("-")
    # The limit avoids int() on a megabyte of digits.
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise _refused(f"{quoted(part)} is no index of an array")
    index = int(part)
    if not -size <= index < size:
        raise _refused(f"unable to access invalid index: {part}")
    return index % size


def _refused(why: str) -> StatusError:
    return invalid(f"the server rejected our request due to an error in our request: {why}")
