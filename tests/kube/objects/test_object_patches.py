"""The three content types of a patch, and the refusals of malformed patches."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.objects.object_patches import (
    JSON_PATCH,
    MAX_COPIED,
    MAX_OPERATIONS,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    apply_json_patch,
    apply_patch,
    merge_patch,
)

NODE: dict[str, Any] = {
    "metadata": {"name": "n", "labels": {"a": "1"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Other"}],
        "volumesInUse": ["x"],
    },
}
DEEP = b"[" * 300 + b"]" * 300


def applied(content_type: str, patch: object) -> dict[str, Any]:
    before = copy.deepcopy(NODE)
    patched = apply_patch(content_type, NODE, json.dumps(patch).encode(), "Node")
    assert before == NODE
    return patched


def test_each_patch_type_merges_lists_by_its_rules() -> None:
    ready = {"type": "Ready", "status": "True"}
    change = {"status": {"conditions": [ready]}}
    assert applied(STRATEGIC_MERGE_PATCH, change)["status"]["conditions"] == [ready, {"type": "Other"}]
    assert applied(MERGE_PATCH, change)["status"]["conditions"] == [ready]
    operation = {"op": "add", "path": "/status/conditions/-", "value": ready}
    assert applied(JSON_PATCH, [operation])["status"]["conditions"][2] == ready


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        # The cases of RFC 7386, appendix A, that are objects.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # Like the server, unlike the RFC.
        ({}, {"a": [{"b": None}, None]}, {"a": [{}, None]}),
    ],
)
def test_merge_patches_follow_rfc_7386(
    document: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert merge_patch(document, patch) == expected


@pytest.mark.parametrize(
    ("content_type", "other"), [(JSON_PATCH, b"{}"), (MERGE_PATCH, b"[]"), (STRATEGIC_MERGE_PATCH, b"[]")]
)
@pytest.mark.parametrize(
    "patch", [None, b"", b"{", b"null", b"5", b'"x"', b"\xff", DEEP, b'{"a":' * 300 + b"1" + b"}" * 300]
)
def test_a_malformed_patch_is_400(content_type: str, other: bytes, patch: bytes | None) -> None:
    """`other` is JSON that is valid for another patch type."""
    with pytest.raises(StatusError) as caught:
        apply_patch(content_type, NODE, other if patch is None else patch, "Node")
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "application/apply-patch+yaml", "text/plain"]
)
def test_an_unknown_patch_type_is_415(content_type: str) -> None:
    with pytest.raises(StatusError) as caught:
        apply_patch(content_type, NODE, b"{}", "Node")
    assert (caught.value.code, caught.value.reason) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "replace", "path": "", "value": []}],
        [{"op": "add", "path": "", "value": {"a": {}}}]
        + [{"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, 300)],
        [{"op": "test", "path": "/status/phase", "value": "x"}],
    ],
)
def test_a_json_patch_that_leaves_no_object_is_refused(operations: list[dict[str, Any]]) -> None:
    with pytest.raises(StatusError) as caught:
        applied(JSON_PATCH, operations)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


# -- JSON patches --------------------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {"a": {"b": [1, 2, 3]}, "m~n": {"x/y": 1}, "t": True, "n": None}


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
        ([op("test", "", value=VALUES)], {}),
        ([op("test", "/n", value=None), op("test", "/missing", value=None)], {}),
    ],
)
def test_each_operation_of_a_json_patch_is_applied(operations: list[Any], changed: dict[str, Any]) -> None:
    before = copy.deepcopy(VALUES)
    assert apply_json_patch(VALUES, operations) == {**before, **changed}
    assert before == VALUES


def test_a_json_patch_may_replace_the_document() -> None:
    assert apply_json_patch(VALUES, [op("replace", "", value={"z": 1})]) == {"z": 1}
    assert apply_json_patch(VALUES, [op("add", "", value={"z": 1})]) == {"z": 1}


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
def test_an_operation_that_does_not_apply_is_refused(operation: dict[str, Any]) -> None:
    before = copy.deepcopy(VALUES)
    with pytest.raises(StatusError) as caught:
        apply_json_patch(VALUES, [op("add", "/first", value=1), operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert before == VALUES


@pytest.mark.parametrize("operations", [{}, None, "x", [1], [[]], 5])
def test_a_malformed_json_patch_is_400(operations: object) -> None:
    with pytest.raises(StatusError) as caught:
        apply_json_patch(VALUES, operations)
    assert caught.value.code == 400


def test_the_number_of_operations_has_a_limit() -> None:
    test = op("test", "/t", value=True)
    assert apply_json_patch(VALUES, [test] * MAX_OPERATIONS) == VALUES
    with pytest.raises(StatusError) as caught:
        apply_json_patch(VALUES, [test] * (MAX_OPERATIONS + 1))
    assert caught.value.code == 413


def test_the_size_of_copies_is_limited() -> None:
    document = {"text": "x" * (MAX_COPIED // 2)}
    again = op("copy", "/again", **{"from": "/text"})
    assert apply_json_patch(document, [again]) == {**document, "again": document["text"]}
    with pytest.raises(StatusError) as caught:
        apply_json_patch(document, [again, again])
    assert caught.value.code == 422


def test_copies_of_copies_are_limited() -> None:
    double = {"op": "copy", "from": "/a", "path": "/a/b/-"}
    with pytest.raises(StatusError) as caught:
        apply_json_patch(VALUES, [double] * MAX_OPERATIONS)
    assert caught.value.code == 422


# -- any patch -----------------------------------------------------------------------------------------------------

DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 9), st.sampled_from("abc")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["a", "status", "conditions", "type", "$patch", "$retainKeys", "$setElementOrder/conditions"]
            ),
            inner,
            max_size=3,
        ),
    ),
)


@given(st.sampled_from([JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH]), DOCUMENTS)
def test_any_patch_is_applied_or_refused(content_type: str, patch: Any) -> None:
    code = 200
    try:
        applied(content_type, patch)
    except StatusError as error:
        code = error.code
    assert code in (200, 400, 422)
