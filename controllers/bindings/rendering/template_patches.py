"""Applies the patches of bindings to a pod spec. Pure.

A patch is one operation of a JSON patch on a path below `/spec/template/spec`, as in the tweaks of a YurtAppSet. All
patches come after all items, in the order of their bindings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controllers.bindings.rendering.template_fields import MERGE_KEYS
from controllers.runtime.unstructured import text
from kube.errors import StatusError
from kube.json_type import Json
from kube.objects.object_patches import JsonPatching

ROOT = "/spec/template/spec"
"""What the paths of patches begin with."""
OPERATIONS = frozenset({"add", "remove", "replace"})
MAX_DEPTH = 64
"""Objects and lists in each other in a patch's value. A pod spec has a dozen; the API server takes hundreds, on which
every recursion here would fail."""


def depth(value: Any) -> int:
    """How many objects and lists are in each other."""
    depth, level = 0, [value]
    while level := [node for node in level if isinstance(node, dict | list)]:
        depth += 1
        level = [inner for node in level for inner in (node.values() if isinstance(node, dict) else node)]
    return depth


def patch_pod_spec(spec: Json, patch: Json, fill: Callable[[str], str]) -> str:
    """Apply one patch to a pod spec, which changes. Returns why the pod spec has no place for it, or "".

    `fill` puts the pool's name into the texts of the value.
    """
    path, operation = text(patch.get("path")), text(patch.get("operation"))
    pointer = path.removeprefix(ROOT)
    if pointer == path or not pointer.startswith("/") or operation not in OPERATIONS:
        return "PathNotAllowed"
    if depth(patch.get("value")) > MAX_DEPTH:
        return "ValueTooDeep"
    value = _filled(patch.get("value"), fill)
    if operation == "add" and _is_repeated(spec, pointer, value):
        return "AlreadyThere"
    try:
        JsonPatching(spec).apply({"op": operation, "path": pointer, "value": value})
    except StatusError:
        return "PathNotFound"
    return ""


def _filled(value: Any, fill: Callable[[str], str]) -> Any:
    """A copy of a value with its texts filled. Members that are null go: the API server does not store them."""
    match value:
        case str():
            return fill(value)
        case list():
            return [_filled(element, fill) for element in value]
        case dict():
            return {name: _filled(field, fill) for name, field in value.items() if field is not None}
        case _:
            return value


def _is_repeated(spec: Json, pointer: str, value: Any) -> bool:
    """Whether an element is added to a list that has one of this name. The API server refuses such lists.

    Of ports and mounts the API server takes several with one key, so only names count.
    """
    *parents, _ = pointer[1:].split("/")
    place: Any = spec
    for part in parents:
        if isinstance(place, dict):
            place = place.get(part)
        elif isinstance(place, list):
            place = place[int(part)] if part.isdigit() and int(part) < len(place) else None
    if not (isinstance(place, list) and isinstance(value, dict) and parents):
        return False
    key = MERGE_KEYS.get(parents[-1], "")
    return key == "name" and any(
        isinstance(element, dict) and element.get(key) == value.get(key) for element in place
    )
