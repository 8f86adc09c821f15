"""The difference between two objects turns one into the other, and changes nothing else in a third object."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.json_type import Json
from kube.objects.strategic_diff import emptied, strategic_diff
from kube.objects.strategic_merge import merge_keys_of, strategic_merge

READY = {"type": "Ready", "status": "True"}
DISK = {"type": "DiskPressure", "status": "False"}
NEW = {"type": "NetworkUnavailable", "status": "False"}
KEYS = merge_keys_of("Pod")


def status(**fields: Any) -> Json:
    return {"status": fields}


@pytest.mark.parametrize(
    ("before", "after", "diff"),
    [
        ({}, {}, {}),
        (status(phase="Pending"), status(phase="Running"), status(phase="Running")),
        (status(phase="Pending", x=1), status(x=1), status(phase=None)),
        (status(reason=None), {"status": {}}, {}),
        (status(conditions=[READY, DISK]), status(conditions=[DISK, READY]), {}),
        (
            status(conditions=[READY, DISK]),
            status(conditions=[{**READY, "status": "False"}, NEW]),
            status(
                conditions=[
                    {"$patch": "delete", "type": "DiskPressure"},
                    {"type": "Ready", "status": "False"},
                    NEW,
                ]
            ),
        ),
        (
            status(conditions=[{**READY, "reason": "x"}]),
            status(conditions=[READY]),
            status(conditions=[{"type": "Ready", "reason": None}]),
        ),
        (status(), status(conditions=[READY]), status(conditions=[READY])),
        (status(), status(conditions=[]), status(conditions=[])),
        (status(conditions=[READY]), status(), status(conditions=None)),
        (
            status(conditions=[READY]),
            status(conditions=[READY, READY]),
            status(conditions=[{"$patch": "replace"}, READY, READY]),
        ),
        (
            status(conditions=[{}]),
            status(conditions=[READY]),
            status(conditions=[{"$patch": "replace"}, READY]),
        ),
        (status(ready=False, images=[0]), status(ready=0, images=[False]), status(ready=0, images=[False])),
        (status(images=[1, 2]), status(images=[2]), status(images=[2])),
        (status(config={"a": 1}), status(config={}), status(config={"a": None})),
        (status(), status(config={}), status(config={})),
        (status(config=1), status(config={"a": 1}), status(config={"a": 1})),
        (
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["b", "c"]}},
            {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}},
        ),
    ],
)
def test_the_difference_of_two_objects(before: Json, after: Json, diff: Json) -> None:
    given_ = copy.deepcopy((before, after))
    assert strategic_diff(before, after, "Node") == diff
    assert (before, after) == given_


NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(st.integers(0, 3), st.booleans(), NAMES)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)


def keyed(key: str) -> st.SearchStrategy[list[Json]]:
    """Generate elements of a merged list, sometimes with repeated keys."""
    element = st.builds(
        lambda name, rest: {**rest, key: name}, NAMES, st.dictionaries(NAMES, VALUES, max_size=2)
    )
    return st.lists(element, max_size=4)


STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "conditions": keyed("type"),
        "podIPs": keyed("ip"),
        "phase": VALUES,
        "containerStatuses": st.lists(VALUES, max_size=3),
        "resources": st.dictionaries(NAMES, VALUES, max_size=3),
    },
)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(NAMES, NAMES, max_size=3),
        "finalizers": st.lists(NAMES, max_size=3, unique=True),
    },
)
PODS = st.fixed_dictionaries({}, optional={"metadata": METADATA, "status": STATUSES})


def sorted_lists(value: Any, path: str = "") -> Any:
    """Return a normal form, equal for objects that differ only in the order of merged lists."""
    if isinstance(value, dict):
        return {name: sorted_lists(each, f"{path}.{name}" if path else name) for name, each in value.items()}
    if isinstance(value, list) and path in KEYS:
        return sorted(map(repr, (sorted_lists(each, path) for each in value)))
    return value


def canonical(value: Any) -> Any:
    """Sort members, so that repr is comparable."""
    if isinstance(value, dict):
        return {name: canonical(value[name]) for name in sorted(value)}
    return [canonical(each) for each in value] if isinstance(value, list) else value


@given(PODS, PODS)
def test_applying_a_difference_twice_changes_nothing_more(before: Json, after: Json) -> None:
    diff = strategic_diff(before, after, "Pod")
    once = strategic_merge(before, diff, KEYS)
    assert sorted_lists(canonical(strategic_merge(once, diff, KEYS))) == sorted_lists(canonical(once))


@given(PODS, PODS)
def test_untouched_fields_of_a_third_object_stay(before: Json, after: Json) -> None:
    theirs = {"type": "theirs", "status": "True"}
    third: Json = {
        "metadata": {"labels": {"theirs": "x"}, "finalizers": ["theirs"]},
        "status": {"conditions": [theirs], "nominatedNodeName": "theirs", "resources": {"theirs": 1}},
    }
    merged = strategic_merge(third, strategic_diff(before, after, "Pod"), KEYS)
    gone = {name for name in ("metadata", "status") if name in before and name not in after}
    if "status" not in gone:
        assert merged["status"]["nominatedNodeName"] == "theirs"
    conditions = (before.get("status", {}).get("conditions"), after.get("status", {}).get("conditions"))
    unique = all(each is not None and len({one["type"] for one in each}) == len(each) for each in conditions)
    if unique:
        assert theirs in merged["status"]["conditions"]
    labels = [each.get("metadata", {}).get("labels") for each in (before, after)]
    if None not in labels:
        assert merged["metadata"]["labels"]["theirs"] == "x"


@given(PODS, st.lists(PODS, max_size=3), PODS)
def test_one_patch_gives_the_same_result_for_each_possible_state(
    before: Json, states: list[Json], after: Json
) -> None:
    patch = strategic_diff(before, after, "Pod", states)
    for each in (before, *states):
        assert sorted_lists(canonical(strategic_merge(each, patch, KEYS))) == sorted_lists(canonical(after))


@given(PODS, PODS, PODS)
def test_a_patched_field_is_set_for_any_value_in_the_object(copied: Json, real: Json, after: Json) -> None:
    """The copy already equals the patch, but the object does not."""
    wanted = strategic_diff({}, after, "Pod")
    made = strategic_merge(copied, wanted, KEYS)
    other = strategic_merge(copied, emptied(wanted, "Pod"), KEYS)
    found = strategic_merge(real, strategic_diff(copied, made, "Pod", [other]), KEYS)
    for name, value in after.get("status", {}).items():
        if not isinstance(value, dict | list):
            assert found["status"][name] == value
    for name, value in after.get("metadata", {}).get("labels", {}).items():
        assert found["metadata"]["labels"][name] == value
