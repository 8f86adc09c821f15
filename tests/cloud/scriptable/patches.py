"""The three kinds of patch on JSON objects: merge (RFC 7386), JSON (RFC 6902) and strategic merge.

All return a new object and leave their arguments alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from kube.json_type import Json


class PatchType(StrEnum):
    """Media types of patches."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class PatchError(ValueError):
    """The patch cannot be read (400) or does not fit the object (422); 500 where a real server says so."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def apply_patch(type_: PatchType, kind: str, target: Json, patch: object) -> Json:
    """`target`, an object of that kind, changed by `patch`, which is parsed JSON. Raises PatchError."""
    if type_ is PatchType.JSON:
        return json_patch(target, patch)
    if not isinstance(patch, dict):
        raise PatchError(
            400, "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
        )
    if type_ is PatchType.MERGE:
        merged = merge_patch(target, patch)
        assert isinstance(merged, dict)
        return merged
    try:
        merged = strategic_merge_patch(kind, target, patch)
    except TypeError as error:
        raise PatchError(422, f"the patch does not fit the object: {error}") from error
    if merged is None:
        raise PatchError(422, "the patch deletes the whole object")
    return merged


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


# -- JSON patch ------------------------------------------------------------------------------------------------


def json_patch(target: Json, patch: object) -> Json:
    """RFC 6902, all of it or nothing."""
    if not isinstance(patch, list):
        raise PatchError(
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        )
    patched: Any = copy.deepcopy(target)
    for operation in patch:
        try:
            patched = _operate(patched, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            if isinstance(error, PatchError):
                raise
            raise PatchError(422, "the server rejected our request due to an error in our request") from error
    if not isinstance(patched, dict):
        raise PatchError(422, "the server rejected our request due to an error in our request")
    return patched


def _operate(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation["value"], insert=True)
        case "replace":
            _at(document, path)
            return _put(document, path, operation["value"], insert=False)
        case "remove":
            return _without(document, path)
        case "move":
            source = _pointer(operation["from"])
            value = _at(document, source)
            return _put(_without(document, source), path, value, insert=True)
        case "copy":
            return _put(
                document, path, copy.deepcopy(_at(document, _pointer(operation["from"]))), insert=True
            )
        case "test":
            if _at(document, path) != operation["value"]:
                raise ValueError(f"test of {operation['path']} failed")
            return document
        case other:
            raise PatchError(400, f"error decoding patch: unknown operation {other!r}")


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise ValueError(f"not a JSON pointer: {text!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _step(container: Any, name: str) -> Any:
    return container[_index(container, name)] if isinstance(container, list) else container[name]


def _index(container: list[Any], name: str) -> int:
    if not name.isdecimal():
        raise ValueError(f"not an index: {name!r}")
    index = int(name)
    if index >= len(container):
        raise IndexError(index)
    return index


def _at(document: Any, path: list[str]) -> Any:
    for name in path:
        document = _step(document, name)
    return document


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    *way, last = path
    container = _at(document, way)
    if isinstance(container, dict):
        container[last] = value
    elif last == "-" and insert:
        container.append(value)
    elif insert:
        container.insert(len(container) if last == str(len(container)) else _index(container, last), value)
    else:
        container[_index(container, last)] = value
    return document


def _without(document: Any, path: list[str]) -> Any:
    *way, last = path
    container = _at(document, way)
    if isinstance(container, list):
        del container[_index(container, last)]
    else:
        del container[last]
    return document


# -- strategic merge -------------------------------------------------------------------------------------------

_CONTAINER = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_CONTAINERS = {f"spec.{kind}": "name" for kind in ("containers", "initContainers", "ephemeralContainers")} | {
    f"spec.{kind}.{field}": key
    for kind in ("containers", "initContainers")
    for field, key in _CONTAINER.items()
}

MERGE_KEYS: Mapping[str, Mapping[str, str]] = {
    "": {"metadata.ownerReferences": "uid", "metadata.finalizers": ""},
    "Node": {"status.conditions": "type", "status.addresses": "type", "spec.podCIDRs": ""},
    "Pod": {
        **_CONTAINERS,
        "spec.volumes": "name",
        "spec.imagePullSecrets": "name",
        "spec.hostAliases": "ip",
        "status.conditions": "type",
        "status.podIPs": "ip",
        "status.hostIPs": "ip",
    },
    "Service": {"spec.ports": "port", "status.conditions": "type"},
    "ServiceAccount": {"secrets": "name", "imagePullSecrets": "name"},
    "Namespace": {"status.conditions": "type"},
    "ServiceCIDR": {"status.conditions": "type"},
    "CSINode": {"spec.drivers": "name"},
}
"""By kind ("" for every kind) and path: the lists that merge, and the field that tells their elements apart ("" where
the elements are strings). Source: the patchMergeKey tags of the API's Go types. Other lists are replaced whole."""


def strategic_merge_patch(kind: str, target: Json, patch: Json) -> Json | None:
    """`target` with `patch` merged, lists by their keys, directives ($patch, $setElementOrder, …) obeyed.

    None when the patch deletes all of it; TypeError for elements that cannot be told apart.
    """
    return _merge_map(target, patch, "", {**MERGE_KEYS[""], **MERGE_KEYS.get(kind, {})})


def _merge_map(
    target: Mapping[str, Any], patch: Mapping[str, Any], path: str, keys: Mapping[str, str]
) -> Json | None:
    """The merged map; None when the patch deletes it."""
    directive = patch.get("$patch", "merge")
    if directive == "delete":
        return None
    if directive == "replace":
        return {name: copy.deepcopy(value) for name, value in patch.items() if name != "$patch"}
    if directive != "merge":
        raise PatchError(400, f"Unknown patch type found: {directive}")
    merged = dict(target)
    for name, value in patch.items():
        if name.startswith("$"):
            _obey(merged, patch, name, value, path, keys)
        elif value is None:
            merged.pop(name, None)
        else:
            _merge_field(merged, name, value, f"{path}.{name}" if path else name, keys, patch)
    if isinstance(kept := patch.get("$retainKeys"), list):
        merged = {name: value for name, value in merged.items() if name in kept}
    return merged


def _obey(
    merged: Json, patch: Mapping[str, Any], name: str, value: Any, path: str, keys: Mapping[str, str]
) -> None:
    """Directives that stand beside the list they speak of and do something when the list itself is not patched."""
    directive, _, field = name.partition("/")
    if directive == "$deleteFromPrimitiveList":
        merged[field] = [one for one in merged.get(field, []) if one not in value]
    elif directive == "$setElementOrder" and field not in patch and isinstance(merged.get(field), list):
        key = keys.get(f"{path}.{field}" if path else field, "")
        merged[field] = _ordered(merged[field], [], value, _identity(key))


def _merge_field(
    merged: Json, name: str, value: Any, path: str, keys: Mapping[str, str], patch: Mapping[str, Any]
) -> None:
    present = merged.get(name)
    if isinstance(value, dict):
        result = _merge_map(present if isinstance(present, dict) else {}, value, path, keys)
        if result is None:
            merged.pop(name, None)
        else:
            merged[name] = result
    elif path in keys:
        if not isinstance(value, list):
            raise PatchError(422, f"cannot restore slice from {type(value).__name__}")
        merged[name] = _merge_list(
            present if isinstance(present, list) else [],
            value,
            path,
            keys,
            patch.get(f"$setElementOrder/{name}"),
        )
    else:
        merged[name] = copy.deepcopy(value)


def _merge_list(
    target: list[Any], patch: list[Any], path: str, keys: Mapping[str, str], order: list[Any] | None
) -> list[Any]:
    identity = _identity(keys[path])
    if any(isinstance(one, dict) and one.get("$patch") == "replace" for one in patch):
        return [copy.deepcopy(one) for one in patch if not (isinstance(one, dict) and "$patch" in one)]
    by_key = {identity(one): one for one in target}
    patched: list[Any] = []
    for element in patch:
        key = identity(element)
        if not isinstance(element, dict):
            by_key[key] = element
            patched.append(key)
            continue
        result = _merge_map(by_key.get(key, {}), element, path, keys)
        if result is None:
            by_key.pop(key, None)
        else:
            by_key[key] = result
            patched.append(key)
    merged = [
        by_key[key] for key in dict.fromkeys([*(identity(one) for one in target), *patched]) if key in by_key
    ]
    return _ordered(merged, patched, order, identity, [identity(one) for one in target])


def _identity(key: str) -> Callable[[Any], Any]:
    def identity(element: Any) -> Any:
        if not key:
            return element
        if not isinstance(element, dict) or key not in element:
            raise PatchError(500, f"map: {element} does not contain declared merge key: {key}")
        return element[key]

    return identity


def _ordered(
    merged: list[Any],
    patched: list[Any],
    order: list[Any] | None,
    identity: Callable[[Any], Any],
    before: list[Any] | None = None,
) -> list[Any]:
    """The elements as a real server orders them: as the patch does, and between them those that it leaves out."""
    by_key = {identity(one): one for one in merged}
    wanted = [identity(one) for one in order] if order is not None else patched
    first = [key for key in dict.fromkeys(wanted) if key in by_key]
    was = before if before is not None else list(by_key)
    others = [key for key in by_key if key not in set(first)]
    result: list[Any] = []
    while first and others:
        known = first[0] in was and others[0] in was
        from_others = known and was.index(others[0]) < was.index(first[0])
        result.append((others if from_others else first).pop(0))
    return [by_key[key] for key in [*result, *first, *others]]
