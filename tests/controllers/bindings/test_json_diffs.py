"""Patches, by what applying them makes."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controllers.bindings.json_diffs import json_diff, merge_diff
from kube.json_type import Json

KEYS = st.sampled_from(["a", "b/c", "d~e"])
VALUES = st.recursive(
    st.booleans() | st.integers(0, 2) | st.text(max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


def apply_json_patch(obj: Json, operations: list[Json]) -> Any:
    """As RFC 6902 says, of the operations that are used here."""
    changed: Any = copy.deepcopy(obj)
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        parent = changed
        for step in steps[:-1]:
            parent = parent[int(step)] if isinstance(parent, list) else parent[step]
        key: Any = int(steps[-1]) if isinstance(parent, list) else steps[-1]
        assert (operation["op"] == "add") == (isinstance(parent, dict) and key not in parent)
        if operation["op"] == "remove":
            del parent[key]
        else:
            parent[key] = operation["value"]
    return changed


def apply_merge_patch(obj: object, patch: object) -> object:
    """As RFC 7386 says."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


@given(OBJECTS, OBJECTS)
def test_patches_make_the_new_object(old: Json, new: Json) -> None:
    assert apply_json_patch(old, json_diff(old, new)) == new
    assert apply_merge_patch(old, merge_diff(old, new)) == new
