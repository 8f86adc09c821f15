"""Strategic merge patches, case by case; tests/kube/objects/test_status_update_real.py compares with a real server."""

from __future__ import annotations

import copy

import pytest

from kube.errors import StatusError
from kube.json_type import Json
from kube.objects.strategic_merge import MergeKeys, strategic_merge

KEYS: MergeKeys = {"list": "k", "texts": "", "deep.list": "k"}
A, B, C = ({"k": name, "v": 1} for name in "abc")


def check(original: Json, patch: Json, expected: Json) -> None:
    before = copy.deepcopy((original, patch))
    assert strategic_merge(original, patch, KEYS) == expected
    assert (original, patch) == before


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"a": None, "b": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({}, {"a": {"b": None, "$patch": "replace"}, "c": {"$retainKeys": ["x"], "x": 1}}, {"c": {"x": 1}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2, "d": None}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": [1]}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 1}}, {"a": {"$retainKeys": ["c", "d"], "d": 2}}, {"a": {"c": 1, "d": 2}}),
    ],
)
def test_objects_are_merged(original: Json, patch: Json, expected: Json) -> None:
    check(original, patch, expected)


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        ([A, B], [{"k": "b", "v": 2}], [A, {"k": "b", "v": 2}]),
        ([A, B], [C], [C, A, B]),
        ([A, B], [{"k": "a", "v": None, "w": 3}], [{"k": "a", "w": 3}, B]),
        ([A, B], [{"k": "a", "$patch": "delete"}], [B]),
        ([A, A, B], [{"k": "a", "$patch": "delete"}], [B]),
        ([A, A], [{"k": "a", "v": 2}], [{"k": "a", "v": 2}, A]),
        ([A, B], [{"$patch": "replace"}, C, C], [C, C]),
        ([A, B], [], [A, B]),
        ([], [A], [A]),
        ([], [], []),
    ],
)
def test_lists_with_a_merge_key_are_merged(
    original: list[Json], patch: list[Json], expected: list[Json]
) -> None:
    check({"list": original}, {"list": patch}, {"list": expected})
    check({"deep": {"list": original}}, {"deep": {"list": patch}}, {"deep": {"list": expected}})


@pytest.mark.parametrize(
    ("original", "patch", "order", "expected"),
    [
        ([A, B, C], None, ["c", "b", "a"], [C, B, A]),
        ([A, B], [C], ["c", "a", "b"], [C, A, B]),
        ([A, B], [C], ["a", "b", "c"], [A, B, C]),
        ([A, B], [{"k": "b", "v": 2}], ["b", "a"], [{"k": "b", "v": 2}, A]),
        # Elements that only the server has keep their position before the next known element.
        ([A, B, C], None, ["c", "b"], [A, C, B]),
        ([A, B, C], [{"k": "c", "v": 2}], ["c"], [A, B, {"k": "c", "v": 2}]),
        (None, [A, B], ["b", "a"], None),
        (None, [B, A], ["b", "a"], [B, A]),
        (None, None, ["b"], None),
        ([A, B], [{"$patch": "delete", "k": "a"}], ["b"], [B]),
        # An added element takes the free position, so A counts as before C.
        ([A, B], [{"$patch": "delete", "k": "b"}, C], ["c"], [A, C]),
        ([A, B], [{"$patch": "delete", "k": "b"}, {"$patch": "replace"}, C], ["c"], [C]),
    ],
)
def test_set_element_order_orders_a_merged_list(
    original: list[Json] | None, patch: list[Json] | None, order: list[str], expected: list[Json] | None
) -> None:
    before: Json = {"list": original} if original is not None else {}
    change: Json = {"list": patch} if patch is not None else {}
    change["$setElementOrder/list"] = [{"k": name} for name in order]
    if patch and expected is None:
        with pytest.raises(StatusError, match="order"):
            strategic_merge(before, change, KEYS)
    else:
        check(before, change, {"list": expected} if expected is not None else {})


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"texts": ["c", "a"]}, ["c", "a", "b"]),
        ({"$deleteFromPrimitiveList/texts": ["a", "x"]}, ["b"]),
        ({"$deleteFromPrimitiveList/texts": ["a"], "texts": ["c"]}, ["c", "b"]),
        ({"$setElementOrder/texts": ["b", "a"]}, ["b", "a"]),
        (
            {"$deleteFromPrimitiveList/texts": ["a"], "$setElementOrder/texts": ["c", "b"], "texts": ["c"]},
            ["c", "b"],
        ),
    ],
)
def test_lists_of_strings_are_merged(patch: Json, expected: list[str]) -> None:
    check({"texts": ["a", "b"]}, patch, {"texts": expected})


def test_deleting_absent_elements_changes_nothing() -> None:
    check({}, {"$deleteFromPrimitiveList/texts": ["a"]}, {})
    check({"texts": ["a"]}, {"$deleteFromPrimitiveList/texts": None}, {})


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "merge"},
        {"a": {"$patch": 5}},
        {"list": [{"k": "a", "$patch": "merge"}]},
        {"list": [{"v": 1}]},
        {"list": [{"$patch": "delete"}]},
        {"list": ["a"]},
        {"list": [{"k": {}}]},
        {"texts": [["a"]]},
        {"texts": [{}]},
        {"$retainKeys": "a"},
        {"$retainKeys": [1]},
        {"$retainKeys": ["a"], "b": 1},
        {"$setElementOrder/list": "a"},
        {"$setElementOrder/list": [{"v": 1}]},
        {"$setElementOrder/list": ["a"]},
        {"$setElementOrder/list": [{"k": "a"}], "list": None},
        {"$setElementOrder/a": [{"k": "a"}]},
        {"$deleteFromPrimitiveList/texts": "a"},
        {"$deleteFromPrimitiveList/texts": [{}]},
        {"$deleteFromPrimitiveList/list": ["a"]},
    ],
)
def test_misused_directives_are_refused(patch: Json) -> None:
    with pytest.raises(StatusError) as caught:
        strategic_merge({"a": {"b": 1}, "list": [A], "texts": ["x"]}, patch, KEYS)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
