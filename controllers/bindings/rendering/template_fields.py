"""How two pod specs differ, field by field, so that each difference can be undone alone. Pure.

The patches of a binding may change anything in a pod spec. The record keeps what they changed as fields: a value in an
object, an element of a list, or a whole list. A writer who changes one container leaves the record of the others valid.

A field's path names elements as strategic merge patches do: `containers/name=app/env/name=SITE/value`. An element of a
list without a merge key is named by its JSON, as in `tolerations/{"operator":"Exists"}`. A list whose elements have
neither unique keys nor unique values, or whose order changed, is one field.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from controllers.bindings.rendering.quantities import same_quantity
from controllers.runtime.unstructured import copied
from kube.json_type import Json

MERGE_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "claims": "name",
    "schedulingGates": "name",
    "sysctls": "name",
    "items": "key",
}
"""The field that names an element of a list, by the list's name (patchMergeKey, listMapKey of k8s.io/api/core/v1)."""

type Path = tuple[str, ...]
"""From the pod spec down: names of members, and of elements."""


class NoField(Exception):
    """A path leads through an object or element that is not there."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field before and after; None: it is absent. `at` is the index of an element where it is present."""

    before: Any
    after: Any
    at: int = 0


type Changes = Mapping[Path, FieldChange]


def format_path(path: Path) -> str:
    """A path as a JSON pointer without its first slash."""
    return "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)


def parse_path(text: str) -> Path:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/"))


def differences(before: Json, after: Json) -> dict[Path, FieldChange]:
    """The fields in which two pod specs differ. No field is inside another one."""
    found: dict[Path, FieldChange] = {}
    _compare_objects(before, after, (), found)
    return found


def restore(spec: Json, changes: Changes) -> dict[Path, Any]:
    """Undo the changes that a pod spec still has; returns the live values of these fields.

    A field with another value stays: a writer has changed it. `spec` is changed.
    """
    held: dict[Path, Any] = {}
    for path, change in changes.items():
        try:
            # An element that a patch removed was stored as it is in the record; a similar one is another element.
            live = read_field(spec, path, exact=change.after is None)
        except NoField:
            continue
        if covers(live, change.after, path):
            held[path] = live
    # Elements that come back count their places among the others, so those that go must have gone.
    for path in sorted(held, key=lambda each: (changes[each].after is None, changes[each].at)):
        with contextlib.suppress(NoField):
            write_field(spec, path, copied(changes[path].before), changes[path].at)
    # The API server keeps no empty list either.
    for path in held:
        with contextlib.suppress(NoField):
            if path[:-1] and read_field(spec, path[:-1]) == []:
                write_field(spec, path[:-1], None)
    return held


def read_field(spec: Json, path: Path, *, exact: bool = False) -> Any:
    """The value of a field, None if it is absent; NoField if what should hold it is absent.

    An element that is named by its value may have been completed by the API server, unless `exact`.
    """
    parent, name = _parent(spec, path)
    if isinstance(parent, dict):
        return parent.get(name)
    index = _index(parent, name, exact=exact)
    return None if index is None else parent[index]


def write_field(spec: Json, path: Path, value: Any, at: int = 0) -> None:
    """Set a field, or by None remove it. A new element goes to index `at`. NoField as of `read_field`."""
    parent, name = _parent(spec, path)
    if isinstance(parent, dict):
        if value is None:
            parent.pop(name, None)
        else:
            parent[name] = value
        return
    index = _index(parent, name, exact=value is not None)
    if index is None:
        if value is not None:
            parent.insert(at, value)
    elif value is None:
        del parent[index]
    else:
        parent[index] = value


def covers(live: Any, wanted: Any, path: Path) -> bool:
    """Whether a live value is the wanted one as the API server stores it.

    The API server adds defaults to objects, leaves out what is empty, false or 0, and writes quantities its own way.
    """
    if live is None or wanted is None:
        return not live and not wanted
    match live, wanted:
        case dict(), dict():
            return (bool(wanted) or not live) and all(
                covers(live.get(name), value, (*path, name)) for name, value in wanted.items()
            )
        case list(), list():
            return len(live) == len(wanted) and all(
                covers(each, other, path) for each, other in zip(live, wanted, strict=True)
            )
        case _:
            same = bool(live == wanted) and isinstance(live, bool) == isinstance(wanted, bool)
            return same or same_quantity(live, wanted, path)


def _compare(before: Any, after: Any, path: Path, found: dict[Path, FieldChange]) -> None:
    # The API server drops objects and lists that became empty. So these are fields as a whole.
    if before and after:
        if isinstance(before, dict) and isinstance(after, dict):
            _compare_objects(before, after, path, found)
            return
        if isinstance(before, list) and isinstance(after, list):
            _compare_lists(before, after, path, found)
            return
    if before != after:
        found[path] = FieldChange(before, after)


def _compare_objects(before: Json, after: Json, path: Path, found: dict[Path, FieldChange]) -> None:
    for name in before.keys() | after.keys():
        _compare(before.get(name), after.get(name), (*path, name), found)


def _compare_lists(before: list[Any], after: list[Any], path: Path, found: dict[Path, FieldChange]) -> None:
    if before == after:
        return
    name_of = _naming(path[-1], before, after)
    if name_of is None:
        found[path] = FieldChange(before, after)
        return
    old, new = ({name_of(each): each for each in elements} for elements in (before, after))
    if [each for each in old if each in new] != [each for each in new if each in old]:
        found[path] = FieldChange(before, after)
        return
    for at, (name, element) in enumerate(old.items()):
        if name not in new:
            found[*path, name] = FieldChange(element, None, at)
    for at, (name, element) in enumerate(new.items()):
        if name not in old:
            found[*path, name] = FieldChange(None, element, at)
        elif name_of is not _by_value:
            _compare(old[name], element, (*path, name), found)


def _naming(name: str, before: list[Any], after: list[Any]) -> Callable[[Any], str] | None:
    """How the elements of a list are named so that no two have the same name; None if there is no way."""
    key = MERGE_KEYS.get(name, "")

    def by_key(element: Any) -> str:
        return f"{key}={element[key]}"

    both = (before, after)
    keyed = key and all(isinstance(each, dict) and key in each for elements in both for each in elements)
    if keyed and all(_unique(elements, by_key) for elements in both):
        return by_key
    return _by_value if all(_unique(elements, _by_value) for elements in both) else None


def _by_value(element: Any) -> str:
    return orjson.dumps(element, option=orjson.OPT_SORT_KEYS).decode()


def _unique(elements: list[Any], name_of: Callable[[Any], str]) -> bool:
    return len({name_of(each) for each in elements}) == len(elements)


def _parent(spec: Json, path: Path) -> tuple[Any, str]:
    place: Any = spec
    for name in path[:-1]:
        if isinstance(place, list):
            index = _index(place, name, exact=False)
            place = None if index is None else place[index]
        elif isinstance(place, dict):
            place = place.get(name)
    if not isinstance(place, dict | list):
        raise NoField
    return place, path[-1]


def _index(elements: list[Any], name: str, *, exact: bool) -> int | None:
    """The index of the element of a name; of one named by its value the same one before one that was completed."""
    try:
        wanted = orjson.loads(name)
    except orjson.JSONDecodeError:
        key, _, value = name.partition("=")
        named = (isinstance(each, dict) and key in each and str(each[key]) == value for each in elements)
        return next(itertools.compress(itertools.count(), named), None)
    same = (_by_value(each) == name for each in elements)
    index = next(itertools.compress(itertools.count(), same), None)
    if index is None and not exact:
        completed = (covers(each, wanted, ()) for each in elements)
        index = next(itertools.compress(itertools.count(), completed), None)
    return index
