"""JSON patches: the six operations, pointers, limits; and that the document given stays as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.errors import StatusError
from kube.objects.object_patches import MAX_COPIED, MAX_OPERATIONS, apply_json_patch

DOCUMENT: dict[str, Any] = {"a": {"b": [1, 2, 3]}, "m~n": {"x/y": 1}, "t": True, "n": None}


def op(kind: str, path: object, **rest: object) -> dict[str, object]:
    return {"op": kind, "path": path, **rest}


@pytest.mark.parametrize(
    ("operations", "changed"),
    [
        ([], {}),
        ([op("add", "/z", value=5)], {"z": 5}),
        ([op("add", "/t", value=5)], {"t": 5}),
        ([op("add", "/a/b/0", value=0)], {"a": {"b": [0, 1, 2, 3]}}),
        ([op("add", "/a/b/3", value=4)], {"a": {"b": [1, 2, 3, 4]}}),
        ([op("add", "/a/b/-", value=4)], {"a": {"b": [1, 2, 3, 4]}}),
        ([op("add", "/a/b/-1", value=4)], {"a": {"b": [1, 2, 3, 4]}}),
        ([op("add", "/a/", value=1)], {"a": {"b": [1, 2, 3], "": 1}}),
        ([op("remove", "/a/b/1")], {"a": {"b": [1, 3]}}),
        ([op("remove", "/a/b/-1")], {"a": {"b": [1, 2]}}),
        ([op("remove", "/a/b"), op("add", "/a/b", value=[])], {"a": {"b": []}}),
        ([op("replace", "/a/b/1", value=9)], {"a": {"b": [1, 9, 3]}}),
        ([op("replace", "/z", value=9)], {"z": 9}),
        ([op("replace", "/m~0n/x~1y", value=2)], {"m~n": {"x/y": 2}}),
        ([op("move", "/z", **{"from": "/a/b/0"})], {"z": 1, "a": {"b": [2, 3]}}),
        ([op("copy", "/z", **{"from": "/a"}), op("add", "/z/b/-", value=4)], {"z": {"b": [1, 2, 3, 4]}}),
        ([op("test", "/a/b", value=[1, 2, 3])], {}),
        ([op("test", "", value=DOCUMENT)], {}),
        ([op("test", "/n", value=None), op("test", "/missing", value=None)], {}),
    ],
)
def test_operations(operations: list[Any], changed: dict[str, Any]) -> None:
    before = copy.deepcopy(DOCUMENT)
    assert apply_json_patch(DOCUMENT, operations) == {**before, **changed}
    assert before == DOCUMENT


def test_the_whole_document() -> None:
    assert apply_json_patch(DOCUMENT, [op("replace", "", value={"z": 1})]) == {"z": 1}
    assert apply_json_patch(DOCUMENT, [op("add", "", value={"z": 1})]) == {"z": 1}


@pytest.mark.parametrize(
    "operation",
    [
        op("add", "/a/b/5", value=1),
        op("add", "/a/b/x", value=1),
        op("add", "/a/b/" + "1" * 5000, value=1),
        op("add", "/missing/x", value=1),
        op("add", "/t/x", value=1),
        op("add", "t", value=1),
        op("add", 5, value=1),
        op("add", "/a/b/²", value=1),
        op("remove", "/missing"),
        op("remove", ""),
        op("remove", "/a/b/3"),
        op("remove", "/a/b/-"),
        op("replace", "/a/b/3", value=1),
        op("replace", "/missing/x", value=1),
        op("move", "/z", **{"from": "/missing"}),
        op("move", "/z"),
        op("copy", "/missing/x", **{"from": "/a"}),
        op("test", "/t", value=1),
        op("test", "/a/b/0", value=True),
        op("test", "/a", value={"b": [1, 2]}),
        op("test", "/a", value={}),
        op("nothing", "/a"),
        {"path": "/a"},
        {"op": "add"},
    ],
)
def test_what_does_not_apply(operation: dict[str, Any]) -> None:
    before = copy.deepcopy(DOCUMENT)
    with pytest.raises(StatusError) as caught:
        apply_json_patch(DOCUMENT, [op("add", "/first", value=1), operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert before == DOCUMENT


@pytest.mark.parametrize("operations", [{}, None, "x", [1], [[]], 5])
def test_what_is_no_patch(operations: object) -> None:
    with pytest.raises(StatusError) as caught:
        apply_json_patch(DOCUMENT, operations)
    assert caught.value.code == 400


def test_the_number_of_operations_has_a_limit() -> None:
    test = op("test", "/t", value=True)
    assert apply_json_patch(DOCUMENT, [test] * MAX_OPERATIONS) == DOCUMENT
    with pytest.raises(StatusError) as caught:
        apply_json_patch(DOCUMENT, [test] * (MAX_OPERATIONS + 1))
    assert caught.value.code == 413


def test_copies_have_a_limit() -> None:
    document = {"text": "x" * (MAX_COPIED // 2)}
    again = op("copy", "/again", **{"from": "/text"})
    assert apply_json_patch(document, [again]) == {**document, "again": document["text"]}
    with pytest.raises(StatusError) as caught:
        apply_json_patch(document, [again, again])
    assert caught.value.code == 422


def test_copies_of_copies_end() -> None:
    double = {"op": "copy", "from": "/a", "path": "/a/b/-"}
    with pytest.raises(StatusError) as caught:
        apply_json_patch(DOCUMENT, [double] * MAX_OPERATIONS)
    assert caught.value.code == 422
