"""The three content types of a patch, and the refusals before a patch is read."""

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
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
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
READY = {"type": "Ready", "status": "True"}
DEEP = b"[" * 300 + b"]" * 300


def applied(content_type: str, patch: object) -> dict[str, Any]:
    before = copy.deepcopy(NODE)
    patched = apply_patch(content_type, NODE, json.dumps(patch).encode(), "Node")
    assert before == NODE
    return patched


def test_each_type_has_its_way_with_lists() -> None:
    change = {"status": {"conditions": [READY]}}
    assert applied(STRATEGIC_MERGE_PATCH, change)["status"]["conditions"] == [READY, {"type": "Other"}]
    assert applied(MERGE_PATCH, change)["status"]["conditions"] == [READY]
    operation = {"op": "add", "path": "/status/conditions/-", "value": READY}
    assert applied(JSON_PATCH, [operation])["status"]["conditions"][2] == READY


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
        # As in the server, not in the RFC.
        ({}, {"a": [{"b": None}, None]}, {"a": [{}, None]}),
    ],
)
def test_merge_patches(document: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge_patch(document, patch) == expected


@pytest.mark.parametrize("content_type", [JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH])
@pytest.mark.parametrize(
    "patch", [b"", b"{", b"null", b"5", b'"x"', b"\xff", DEEP, b'{"a":' * 300 + b"1" + b"}" * 300]
)
def test_what_is_no_patch(content_type: str, patch: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        apply_patch(content_type, NODE, patch, "Node")
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("content_type", "patch"), [(JSON_PATCH, b"{}"), (MERGE_PATCH, b"[]"), (STRATEGIC_MERGE_PATCH, b"[]")]
)
def test_the_wrong_shape(content_type: str, patch: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        apply_patch(content_type, NODE, patch, "Node")
    assert caught.value.code == 400


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "application/apply-patch+yaml", "text/plain"]
)
def test_other_types(content_type: str) -> None:
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
def test_a_json_patch_that_leaves_no_object(operations: list[dict[str, Any]]) -> None:
    with pytest.raises(StatusError) as caught:
        applied(JSON_PATCH, operations)
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


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
