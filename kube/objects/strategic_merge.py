"""Applies strategic merge patches to parsed JSON as apimachinery's strategicpatch does: lists by merge keys, and the
directives `$patch`, `$retainKeys`, `$setElementOrder/…` and `$deleteFromPrimitiveList/…`.

The given objects stay as they are. The result shares the unchanged parts with them.

The merge keys are those of a Node and a Pod, from the tags patchStrategy and patchMergeKey of api/core/v1/types.go and
apimachinery's meta/v1/types.go, 1.36. Only lists of metadata and status have one: a write of a status changes nothing
else. A patch replaces every other list as a whole, also containerStatuses, whose elements have such lists.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from kube.errors import bad_request
from kube.json_type import Json

type MergeKeys = Mapping[str, str]
"""Path of a list, as "status.conditions" -> the field that names an element; "" for a list of texts."""

_METADATA: MergeKeys = {"metadata.ownerReferences": "uid", "metadata.finalizers": ""}

_KINDS: Mapping[str, MergeKeys] = {
    # A node has many addresses of one type, which the server merges into the first: kubelet sends them with
    # `$patch: replace`.
    "Node": {**_METADATA, "status.conditions": "type", "status.addresses": "type"},
    "Pod": {
        **_METADATA,
        "status.conditions": "type",
        "status.hostIPs": "ip",
        "status.podIPs": "ip",
        "status.resourceClaimStatuses": "name",
    },
}

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
SET_ORDER = "$setElementOrder/"
DELETE_FROM = "$deleteFromPrimitiveList/"


def merge_keys_of(kind: str) -> MergeKeys:
    """The merged lists of a kind; only those of metadata for a kind without an entry."""
    return _KINDS.get(kind, _METADATA)


def below(path: str, name: str) -> str:
    """The path of a field below `path`. An element of a list has the path of the list."""
    return f"{path}.{name}" if path else name


def strategic_merge(original: Json, patch: Json, keys: MergeKeys, path: str = "") -> Json:
    """Return the patched object. StatusError 400 for a patch that misuses a directive."""
    if DIRECTIVE in patch:
        return _directed(patch)
    merged, rest = _retained(original, patch), dict(patch)
    rest.pop(RETAIN_KEYS, None)
    for field in [key_ for key_ in rest if key_.startswith(SET_ORDER)]:
        _merge_in_order(merged, rest, field, keys, path)
    for field, value in rest.items():
        if field.startswith(DELETE_FROM):
            _delete_from(merged, field, value)
        elif value is None:
            merged.pop(field, None)
        elif field in merged:
            _merge_field(merged, field, value, keys, below(path, field))
        else:
            _put(merged, field, value)
    return merged


def _directed(patch: Json) -> Json:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        content: Json = _cleaned({name: value for name, value in patch.items() if name != DIRECTIVE})
        return content
    if directive == "delete":
        return {}
    raise bad_request(f"unknown patch type: {directive}")


def _retained(original: Json, patch: Json) -> Json:
    """A copy of the object; if the patch has `$retainKeys`, with only the keys that it names."""
    if RETAIN_KEYS not in patch:
        return dict(original)
    retained = patch[RETAIN_KEYS]
    if not isinstance(retained, list) or not all(isinstance(key_, str) for key_ in retained):
        raise bad_request("invalid patch format of retainKeys")
    names = frozenset(retained)
    for name, value in patch.items():
        is_directive = name.startswith((RETAIN_KEYS, SET_ORDER, DELETE_FROM))
        if value is not None and not is_directive and name not in names:
            raise bad_request("invalid patch format of retainKeys")
    return {name: value for name, value in original.items() if name in names}


def _merge_field(merged: Json, field: str, value: Any, keys: MergeKeys, path: str) -> None:
    match merged[field], value:
        case dict() as old, dict():
            merged[field] = strategic_merge(old, value, keys, path)
        case list() as old, list() if path in keys:
            merged[field] = _merged_list(old, value, keys, path)
        case _:
            _put(merged, field, value)


def _put(merged: Json, field: str, value: Any) -> None:
    """Set a field that has nothing to merge with; directives and nulls are removed from the value."""
    if isinstance(value, dict) and DIRECTIVE in value:
        merged.pop(field, None)
    else:
        merged[field] = _cleaned(value)


def _cleaned(value: Any) -> Any:
    """The value without directives, and without nulls in objects."""
    if isinstance(value, dict):
        return {
            name: _cleaned(field)
            for name, field in value.items()
            if field is not None
            and not name.startswith((RETAIN_KEYS, SET_ORDER, DELETE_FROM))
            and not (isinstance(field, dict) and DIRECTIVE in field)
        }
    if isinstance(value, list):
        return [
            _cleaned(element) for element in value if not (isinstance(element, dict) and DIRECTIVE in element)
        ]
    return value


def _delete_from(merged: Json, field: str, value: Any) -> None:
    name = field.removeprefix(DELETE_FROM)
    if value is None:
        merged.pop(name, None)
        return
    removed = {_identity(element, "") for element in _list(value, "invalid patch format of primitive list")}
    if isinstance(merged.get(name), list):
        merged[name] = [element for element in merged[name] if _identity(element, "") not in removed]


def _merge_in_order(merged: Json, rest: Json, field: str, keys: MergeKeys, path: str) -> None:
    """Apply one `$setElementOrder/…` and its list, and remove both from `rest`."""
    malformed = "invalid patch format of setElementOrder list"
    order = _list(rest.pop(field), malformed)
    name = field.removeprefix(SET_ORDER)
    list_path = below(path, name)
    key = keys.get(list_path, "")
    old, new = merged.get(name), rest.get(name)
    if name in rest:
        _check_order(_list(new, malformed), order, key)
    if old is not None:
        _list(old, malformed)
    if name not in rest:
        both = old
    elif old is None:
        both = _cleaned(new)
    else:
        both = _merged_list(old, new or [], keys, list_path) if list_path in keys else _cleaned(new)
    rest.pop(name, None)
    if both is not None:
        merged[name] = _interleaved(both, order, _live(old or [], new or [], key), key)


def _live(original: list[Any], patch: list[Any], key: str) -> list[Any]:
    """The order in which the server is assumed to have the elements.

    Added elements fill the positions of deleted ones, because apimachinery writes them there in its array.
    """
    directives = [element for element in patch if isinstance(element, dict) and DIRECTIVE in element]
    if not original or not directives or any(directive[DIRECTIVE] != "delete" for directive in directives):
        return original
    deleted = {_identity(directive, key) for directive in directives}
    remaining = [element for element in original if _identity(element, key) not in deleted]
    known = _positions(remaining, key)
    added = [
        element for element in patch if DIRECTIVE not in element and _identity(element, key) not in known
    ]
    return [*remaining, *added][: len(original)]


def _check_order(patch: Sequence[Any], order: Sequence[Any], key: str) -> None:
    """Refuse a patch whose elements are not in the order that it sets."""
    if not patch or not order:
        return
    wanted = iter([_identity(element, key) for element in order])
    for element in patch:
        if isinstance(element, dict) and DIRECTIVE in element:
            continue
        if _identity(element, key) not in wanted:  # advances to the next equal element
            raise bad_request("the order of the patch's list is not that of its $setElementOrder list")


def _merged_list(original: list[Any], patch: list[Any], keys: MergeKeys, path: str) -> list[Any]:
    if not original and not patch:
        return original
    key = keys[path]
    plain, added = original, patch
    if key:
        plain, added = _without_special(original, patch, key)
        merged = _merged_elements(plain, added, keys, path)
    else:
        merged = list(dict.fromkeys(_identity(element, "") for element in [*original, *patch]))
    return _interleaved(merged, added, plain, key)


def _without_special(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Apply the directives among the patch's elements to both lists."""
    plain: list[Any] = []
    deleted = set()
    replace = False
    for element in patch:
        if not isinstance(element, dict):
            raise bad_request("list element types are not identical")
        match element.get(DIRECTIVE):
            case None:
                plain.append(element)
            case "delete":
                deleted.add(_identity(element, key))
            case "replace":
                replace = True
            case other:
                raise bad_request(f"unknown patch type: {other} in a list")
    if replace:
        return [_cleaned(element) for element in plain], []
    return [element for element in original if not deleted or _identity(element, key) not in deleted], plain


def _merged_elements(original: list[Any], patch: list[Any], keys: MergeKeys, path: str) -> list[Any]:
    key = keys[path]
    merged = list(original)
    # Of elements with the same key the first one gets the changes.
    positions = _positions(merged, key)
    for element in patch:
        identity = _identity(element, key)
        if identity in positions:
            position = positions[identity]
            merged[position] = strategic_merge(merged[position], element, keys, path)
        else:
            positions[identity] = len(merged)
            merged.append(_cleaned(element))
    return merged


def _interleaved(merged: list[Any], order: list[Any], original: list[Any], key: str) -> list[Any]:
    """The elements that `order` names, in its order; the others keep their positions between them."""
    ordered, live = _positions(order, key), _positions(original, key)
    named = [element for element in merged if _identity(element, key) in ordered]
    named.sort(key=lambda element: ordered[_identity(element, key)])
    rest = [element for element in merged if _identity(element, key) not in ordered]
    rest.sort(key=lambda element: live.get(_identity(element, key), len(live)))
    others = deque(rest)
    result: list[Any] = []
    for element in named:
        position = live.get(_identity(element, key))
        while others and position is not None and live.get(_identity(others[0], key), position) < position:
            result.append(others.popleft())
        result.append(element)
    return [*result, *others]


def _positions(elements: list[Any], key: str) -> dict[Any, int]:
    """The first position of each identity."""
    return {_identity(element, key): position for position, element in reversed(list(enumerate(elements)))}


def _identity(element: Any, key: str) -> Any:
    """The identity of a list's element: its merge key, or the text or number itself."""
    if not key:
        identity = element
    elif not isinstance(element, dict):
        raise bad_request("list element types are not identical")
    elif key not in element:
        raise bad_request(f"an element does not contain the declared merge key: {key}")
    else:
        identity = element[key]
    if isinstance(identity, dict | list):
        raise bad_request("lists of lists or objects have no order without a merge key")
    return identity


def _list(value: Any, otherwise: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(otherwise)
    return value
