"""The differences of two pod specs, field by field, so that each can be undone independently. Pure.

The patches of a binding may change anything in a pod spec. The record stores their changes as fields: a value in an
object, an element of a list, or a complete list. A change to one container leaves the records of the others valid.

A field's path names elements as strategic merge patches do: `containers/name=app/env/name=SITE/value`. An element of a
list without a merge key is named by its JSON, as in `tolerations/{"operator":"Exists"}`. A list whose elements have
neither unique keys nor unique values, or whose order changed, is one field.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from controllers.runtime.unstructured import copied, text
from kube.errors import StatusError
from kube.json_type import Json, same_json
from kube.objects.object_patches import JsonPatching

MERGE_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "env", "imagePullSecrets"), "name"),
    **dict.fromkeys(("resourceClaims", "claims", "schedulingGates", "sysctls"), "name"),
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "items": "key",
}
"""The field that identifies an element, by the list's name (patchMergeKey, listMapKey in k8s.io/api/core/v1)."""

NAMING_KEYS = frozenset(MERGE_KEYS.values())

_QUANTITY = re.compile(
    r"([+-]?[0-9]{0,30}(?:\.[0-9]{0,30})?)(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)
_FACTORS = {
    "": Decimal(1),
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("num", -3)},
    **{unit: Decimal(10) ** (3 * power) for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_PARENTS = frozenset({"limits", "requests"})
_NAMES = frozenset({"sizeLimit", "divisor"})

type Path = tuple[str, ...]
"""The names of members and elements, from the pod spec down."""


class NoField(Exception):
    """A path leads through an object or element that does not exist."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The value of a field before and after a change; None if absent. `at` is the index of a list element, from the
    side that has it."""

    before: Any
    after: Any
    at: int = 0


type Changes = Mapping[Path, FieldChange]


def format_path(path: Path) -> str:
    """Format a path as a JSON pointer without its first slash."""
    return "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)


def parse_path(text: str) -> Path:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/"))


def differences(before: Json, after: Json) -> dict[Path, FieldChange]:
    """Return the fields in which two pod specs differ. No field contains another."""
    changes: dict[Path, FieldChange] = {}
    _compare_objects(before, after, (), changes)
    return changes


def restore(spec: Json, changes: Changes) -> dict[Path, Any]:
    """Undo the changes that a pod spec still has, in place; return the current values of these fields.

    A field with another value stays, because another writer has changed it.
    """
    fields, held = _Fields(spec), dict[Path, _FieldLocation]()
    for path, change in changes.items():
        # The record has the element that a patch removed exactly; a similar element is another one.
        with contextlib.suppress(NoField):
            location = fields.find(path, exact=change.after is None)
            if covers(location.value, change.after, path):
                held[path] = location
    live = {path: location.value for path, location in held.items()}
    gone: dict[int, tuple[_FieldLocation, set[int]]] = {}
    for path, location in held.items():
        before = changes[path].before
        if before is None and isinstance(location.key, int):
            gone.setdefault(id(location.holder), (location, set()))[1].add(location.key)
        else:
            location.set(copied(before))
    for location, indexes in gone.values():
        location.holder[:] = [element for at, element in enumerate(location.holder) if at not in indexes]
    # Restored elements have indices among the others, so removals come first.
    for path in sorted(held, key=lambda path: changes[path].at):
        location, change = held[path], changes[path]
        if location.key is None and change.before is not None:
            location.holder.insert(change.at, copied(change.before))
    # The API server keeps no empty list either.
    for location in held.values():
        if location.holder == [] and isinstance(location.above, dict):
            location.above.pop(location.list_name, None)
    return live


def complete(spec: Json, live: Mapping[Path, Any]) -> None:
    """Set fields of a pod spec to their live values. Fields that the pod spec lacks stay absent."""
    fields = _Fields(spec)
    for path, value in live.items():
        with contextlib.suppress(NoField):
            fields.find(path, exact=True).set(value)


@dataclass(frozen=True, slots=True)
class _FieldLocation:
    """The location of a field: its parent object or list, and its key or index there; None if the list lacks it."""

    holder: Any
    key: str | int | None
    above: Any
    list_name: str
    """The name of the list, if the parent is a list."""

    @property
    def value(self) -> Any:
        """The field's value; None if absent."""
        if self.key is None:
            return None
        return self.holder.get(self.key) if isinstance(self.holder, dict) else self.holder[self.key]

    def set(self, value: Any) -> None:
        """Set or, with None, remove a member of an object; or replace an existing element of a list."""
        if isinstance(self.key, str) and value is None:
            self.holder.pop(self.key, None)
        elif self.key is not None and value is not None:
            self.holder[self.key] = value


class _Fields:
    """An index of a pod spec's fields. It scans each list once, because a record may name thousands of its elements."""

    def __init__(self, spec: Json) -> None:
        self._spec = spec
        self._indexes: dict[tuple[int, str], dict[str, int]] = {}

    def find(self, path: Path, *, exact: bool) -> _FieldLocation:
        """Return the location of a field; NoField if its parent does not exist.

        Unless `exact`, an element that is named by its value also matches one to which the API server added defaults.
        """
        above: Any = None
        holder: Any = self._spec
        list_name = ""
        for name in path[:-1]:
            key = self._key(holder, name, exact=False)
            inner = None if key is None else _FieldLocation(holder, key, None, "").value
            if not isinstance(inner, dict | list):
                raise NoField
            above, holder, list_name = holder, inner, name
        return _FieldLocation(holder, self._key(holder, path[-1], exact=exact), above, list_name)

    def _key(self, holder: Any, name: str, *, exact: bool) -> str | int | None:
        return name if isinstance(holder, dict) else self._index(holder, name, exact=exact)

    def _index(self, elements: list[Any], name: str, *, exact: bool) -> int | None:
        """Return the index of the element with a name. For a name that is a value, an equal element precedes one with
        added defaults."""
        try:
            wanted = orjson.loads(name)
        except orjson.JSONDecodeError:
            key = name.partition("=")[0]
            return self._indexed(elements, key).get(name) if key in NAMING_KEYS else None
        index = self._indexed(elements, "").get(name)
        if index is None and not exact and isinstance(wanted, dict):
            completed = (covers(element, wanted, ()) for element in elements)
            index = next(itertools.compress(itertools.count(), completed), None)
        return index

    def _indexed(self, elements: list[Any], key: str) -> dict[str, int]:
        """Return the first index of each element by its name: a merge key's value or, if `key` is empty, the element's
        JSON."""
        index = self._indexes.get((id(elements), key))
        if index is None:
            index = self._indexes[id(elements), key] = {}
            for at, element in enumerate(elements):
                if not key:
                    index.setdefault(_by_value(element), at)
                elif isinstance(element, dict) and key in element:
                    index.setdefault(f"{key}={element[key]}", at)
        return index


def covers(live: Any, wanted: Any, path: Path) -> bool:
    """Whether `live` is `wanted` as the API server stores it: with defaults, without empty values, with normalised
    quantities.

    The API server adds defaults to objects, leaves out empty, false and 0 values, and writes quantities its own way.
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
                covers(pair, other, path) for pair, other in zip(live, wanted, strict=True)
            )
        case _:
            same = bool(live == wanted) and isinstance(live, bool) == isinstance(wanted, bool)
            return same or same_quantity(live, wanted, path)


def _compare(before: Any, after: Any, path: Path, changes: dict[Path, FieldChange]) -> None:
    # The API server drops objects and lists that became empty. So these are one field each.
    if before and after:
        if isinstance(before, dict) and isinstance(after, dict):
            _compare_objects(before, after, path, changes)
            return
        if isinstance(before, list) and isinstance(after, list):
            _compare_lists(before, after, path, changes)
            return
    if not same_json(before, after):
        changes[path] = FieldChange(before, after)


def _compare_objects(before: Json, after: Json, path: Path, changes: dict[Path, FieldChange]) -> None:
    for name in before.keys() | after.keys():
        _compare(before.get(name), after.get(name), (*path, name), changes)


def _compare_lists(before: list[Any], after: list[Any], path: Path, changes: dict[Path, FieldChange]) -> None:
    if same_json(before, after):
        return
    name_of = _naming(path[-1], before, after)
    if name_of is None:
        changes[path] = FieldChange(before, after)
        return
    old, new = ({name_of(element): element for element in elements} for elements in (before, after))
    if [element for element in old if element in new] != [element for element in new if element in old]:
        changes[path] = FieldChange(before, after)
        return
    for at, (name, element) in enumerate(old.items()):
        if name not in new:
            changes[*path, name] = FieldChange(element, None, at)
    for at, (name, element) in enumerate(new.items()):
        if name not in old:
            changes[*path, name] = FieldChange(None, element, at)
        elif name_of is not _by_value:
            _compare(old[name], element, (*path, name), changes)


def _naming(name: str, before: list[Any], after: list[Any]) -> Callable[[Any], str] | None:
    """Return unique names of the elements of a list; None if there are none."""
    key = MERGE_KEYS.get(name, "")

    def by_key(element: Any) -> str:
        return f"{key}={element[key]}"

    both = (before, after)
    keyed = key and all(
        isinstance(element, dict) and key in element for elements in both for element in elements
    )
    if keyed and all(_unique(elements, by_key) for elements in both):
        return by_key
    return _by_value if all(_unique(elements, _by_value) for elements in both) else None


def _by_value(element: Any) -> str:
    return orjson.dumps(element, option=orjson.OPT_SORT_KEYS).decode()


def _unique(elements: list[Any], name_of: Callable[[Any], str]) -> bool:
    return len({name_of(element) for element in elements}) == len(elements)


def same_quantity(left: Any, right: Any, path: Sequence[str]) -> bool:
    """Whether two values of a pod spec's field are the same quantity; False for fields that are not quantities.

    The API server stores `0.5` as `500m`; the rules are those of apimachinery's pkg/api/resource/quantity.go.
    """
    if not (_NAMES.intersection(path[-1:]) or _PARENTS.intersection(path[-2:-1])):
        return False
    parsed = parse_quantity(left)
    return parsed is not None and parsed == parse_quantity(right)


def parse_quantity(value: Any) -> Decimal | None:
    """Parse a quantity; None if the text is not one."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or not any(map(str.isdigit, match[1])):
        return None
    return Decimal(f"{match[1]}{match[2] or ''}") * _FACTORS[match[3] or ""]


ROOT = "/spec/template/spec"
"""The prefix of all paths in JSON patches."""
OPERATIONS = frozenset({"add", "remove", "replace"})
MAX_DEPTH = 64
"""Nesting depth of a patch's value. A pod spec has a dozen levels; the API server accepts hundreds, which would exceed
Python's recursion limit here."""


def depth(value: Any) -> int:
    """Return the nesting depth of objects and lists."""
    depth, level = 0, [value]
    while level := [node for node in level if isinstance(node, dict | list)]:
        depth += 1
        level = [inner for node in level for inner in (node.values() if isinstance(node, dict) else node)]
    return depth


def patch_pod_spec(spec: Json, patch: Json, fill: Callable[[str], str]) -> str:
    """Apply one patch to a pod spec in place. Return why it cannot be applied, or "".

    `fill` replaces the pool's placeholders in the texts of the value.
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
    """Copy a value with its texts filled in and its null members removed, because the API server does not store
    those."""
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
    """Whether a list already has an element with the name of an added one. The API server refuses such lists.

    Ports and mounts may share their merge key, so only elements with a `name` count.
    """
    *parents, _ = pointer[1:].split("/")
    location: Any = spec
    for part in parents:
        if isinstance(location, dict):
            location = location.get(part)
        elif isinstance(location, list):
            location = location[int(part)] if part.isdigit() and int(part) < len(location) else None
    if not (isinstance(location, list) and isinstance(value, dict) and parents):
        return False
    key = MERGE_KEYS.get(parents[-1], "")
    return key == "name" and any(
        isinstance(element, dict) and element.get(key) == value.get(key) for element in location
    )
