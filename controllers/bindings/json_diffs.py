"""The difference of two JSON objects as a JSON patch (RFC 6902) and as a JSON merge patch (RFC 7386). Pure."""

from __future__ import annotations

from kube.json_type import Json


def json_diff(old: Json, new: Json) -> list[Json]:
    """The operations that turn `old` into `new`, for the response of an admission webhook."""
    operations: list[Json] = []
    _compare(old, new, "", operations)
    return operations


def merge_diff(old: Json, new: Json) -> Json:
    """The merge patch that turns `old` into `new`: null removes a key, and a list that differs is replaced whole."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := merge_diff(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def _compare(old: object, new: object, path: str, operations: list[Json]) -> None:
    if old == new:
        return  # most of an object is as it was, and paths are made for the rest alone
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            if key not in new:
                operations.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
        for key, value in new.items():
            if key not in old:
                operations.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})
            else:
                _compare(old[key], value, f"{path}/{_escaped(key)}", operations)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            _compare(before, after, f"{path}/{index}", operations)
    else:
        operations.append({"op": "replace", "path": path, "value": new})


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
