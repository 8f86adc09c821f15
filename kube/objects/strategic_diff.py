"""Computes the strategic merge patch between two parsed JSON objects."""

from collections.abc import Iterable
from typing import Any

from kube.json_type import Json, same_json
from kube.objects.strategic_merge import DELETE_FROM, DIRECTIVE, MergeKeys, below, merge_keys_of
from kube.wire.json_fields import write_json

_REPLACE = {DIRECTIVE: "replace"}


def strategic_diff(before: Json, after: Json, kind: str, or_before: Iterable[Json] = ()) -> Json:
    """Return a patch that turns `before`, and each of `or_before`, into `after`, up to the order of merged lists.

    The patch has no fields and elements that are equal in all objects, so that it also applies to an object that
    another client has changed meanwhile. A null counts as an absent field, as everywhere in the API.
    """
    keys = merge_keys_of(kind)
    patch = _changes(before, after, keys, "")
    for element in or_before:
        patch = _united(patch, _changes(element, after, keys, ""), keys, "")
    return patch


def emptied(patch: Json, kind: str) -> Json:
    """Return the patch that removes each field that `patch` sets."""
    return _emptied(patch, merge_keys_of(kind), "")


def _emptied(patch: Json, keys: MergeKeys, path: str) -> Json:
    fields: Json = {}
    for name, value in patch.items():
        field_path = below(path, name)
        if name.startswith("$"):
            continue
        if isinstance(value, dict):
            fields[name] = _emptied(value, keys, field_path)
        elif isinstance(value, list) and keys.get(field_path) and (named := _by_key(value, keys[field_path])):
            # A list is removed as a whole if its elements repeat a key, or have a directive.
            key = keys[field_path]
            fields[name] = [
                {**_emptied(element, keys, field_path), key: element[key]} for element in named.values()
            ]
        else:
            fields[name] = None
    return fields


def _united(one: Json, other: Json, keys: MergeKeys, path: str) -> Json:
    """Unite two patches with the same result. Fields that both set have the same value."""
    united = dict(one)
    for name, new in other.items():
        field_path = below(path, name)
        match united.get(name), new:
            case dict() as old, dict():
                united[name] = _united(old, new, keys, field_path)
            case list() as old, list() if keys.get(field_path):
                united[name] = _united_elements(old, new, keys, field_path)
            case list() as old, list() if field_path in keys or name.startswith(DELETE_FROM):
                united[name] = old + [element for element in new if element not in old]
            case _:
                united[name] = new
    return united


def _united_elements(one: list[Any], other: list[Any], keys: MergeKeys, path: str) -> list[Any]:
    old, new = _by_key(one, keys[path]), _by_key(other, keys[path])
    if old is None or new is None:
        replacing = one if old is None else other
        return replacing if replacing[:1] == [_REPLACE] else [_REPLACE, *replacing]
    united = [_united(element, new.pop(identity, {}), keys, path) for identity, element in old.items()]
    return [*united, *new.values()]


def _changes(before: Json, after: Json, keys: MergeKeys, path: str) -> Json:
    gone = (name for name, value in before.items() if value is not None and after.get(name) is None)
    patch: Json = dict.fromkeys(gone)
    for name, new in after.items():
        old, field_path = before.get(name), below(path, name)
        if new is None or same_json(new, old):
            continue
        match old, new:
            case dict(), dict():
                # Objects that differ in nulls or in the order of a merged list are equal.
                if changes := _changes(old, new, keys, field_path):
                    patch[name] = changes
            case ((list() | None), list()) if keys.get(field_path):
                if elements := _elements(old or [], new, keys, field_path):
                    patch[name] = elements
                elif old is None:
                    patch[name] = []
            case list(), list() if field_path in keys:
                patch |= _texts(name, old, new)
            case _, dict():
                # The object that the patch meets may have a value there.
                patch[name] = _changes({}, new, keys, field_path)
            case _:
                patch[name] = new
    return patch


def _elements(before: list[Any], after: list[Any], keys: MergeKeys, path: str) -> list[Any]:
    """The changes of a list with a merge key; the full list if two elements share a key."""
    key = keys[path]
    old, new = _by_key(before, key), _by_key(after, key)
    if old is None or new is None:
        return [] if same_json(before, after) else [_REPLACE, *after]
    patch: list[Any] = [{DIRECTIVE: "delete", key: identity} for identity in old if identity not in new]
    for identity, element in new.items():
        if identity not in old:
            patch.append(element)
        elif changes := _changes(old[identity], element, keys, path):
            patch.append({key: identity, **changes})
    return patch


def _by_key(elements: list[Any], key: str) -> dict[str, Json] | None:
    """The elements by merge key; None if two share a key, or one has none."""
    named: dict[str, Json] = {}
    for element in elements:
        identity = element.get(key) if isinstance(element, dict) else None
        if not isinstance(identity, str) or identity in named:
            return None
        named[identity] = element
    return named


def _texts(name: str, before: list[Any], after: list[Any]) -> Json:
    """The additions to and deletions from a list of strings."""
    had, has = {_hashable(text) for text in before}, {_hashable(text) for text in after}
    gained = [text for text in after if _hashable(text) not in had]
    lost = [text for text in before if _hashable(text) not in has]
    patch: Json = {name: gained} if gained else {}
    return patch | {f"{DELETE_FROM}{name}": lost} if lost else patch


def _hashable(value: Any) -> Any:
    """The string itself, or the JSON of another value, which the API does not allow in such lists."""
    return value if isinstance(value, str) else write_json(value)
