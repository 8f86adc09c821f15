"""Patches: what each kind makes of an object, by example."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.cloud.scriptable.patches import (
    PatchError,
    PatchType,
    apply_patch,
    json_patch,
    merge_patch,
    strategic_merge_patch,
)


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": "x"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"a": 1}, {"absent": None}, {"a": 1}),
    ],
)
def test_merge_patch(target: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == expected
    assert target == before


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "add", "path": "/a/2", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "move", "from": "/a", "path": "/b"}], {"b": [1, 2]}),
        ([{"op": "copy", "from": "/a/0", "path": "/b"}], {"a": [1, 2], "b": 1}),
        ([{"op": "test", "path": "/a/1", "value": 2}, {"op": "remove", "path": "/a"}], {}),
        ([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"a": [1, 2], "x/y~z": 1}),
    ],
)
def test_json_patch(operations: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    target = {"a": [1, 2]}
    assert json_patch(target, operations) == expected
    assert target == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ({"op": "remove"}, 400),
        ([{"op": "explode", "path": "/a"}], 400),
        ([{"op": "remove", "path": "/absent"}], 422),
        ([{"op": "replace", "path": "/absent", "value": 1}], 422),
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "add", "path": "a", "value": 2}], 422),
        ([{"op": "add", "path": "/a/b/c", "value": 2}], 422),
        ([{"op": "replace", "path": "", "value": 2}], 422),
        ([{"path": "/a"}], 422),
        (["add"], 422),
    ],
)
def test_json_patch_that_does_not_apply(operations: object, code: int) -> None:
    with pytest.raises(PatchError) as refused:
        json_patch({"a": 1}, operations)
    assert refused.value.code == code


NODE: dict[str, Any] = {
    "metadata": {"name": "n", "finalizers": ["a", "b"]},
    "status": {
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "status": "False"}],
        "images": [{"names": ["x"]}],
    },
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(
            {"status": {"conditions": [{"type": "Disk", "status": "True"}]}},
            [{"type": "Ready", "status": "False"}, {"type": "Disk", "status": "True"}],
            id="an element is found by its key",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "New", "status": "True"}]}},
            [
                {"type": "New", "status": "True"},
                {"type": "Ready", "status": "False"},
                {"type": "Disk", "status": "False"},
            ],
            id="a new one stands before those that the patch does not name",
        ),
        pytest.param(
            {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}},
            [{"type": "Disk", "status": "False"}],
            id="delete",
        ),
        pytest.param(
            {"status": {"conditions": [{"$patch": "replace"}, {"type": "Only"}]}},
            [{"type": "Only"}],
            id="replace",
        ),
        pytest.param(
            {
                "status": {
                    "$setElementOrder/conditions": [{"type": "Disk"}, {"type": "Ready"}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                }
            },
            [{"type": "Disk", "status": "False"}, {"type": "Ready", "status": "True"}],
            id="order",
        ),
        pytest.param(
            {"status": {"$setElementOrder/conditions": [{"type": "Disk"}, {"type": "Ready"}]}},
            [{"type": "Disk", "status": "False"}, {"type": "Ready", "status": "False"}],
            id="order alone",
        ),
        pytest.param({"status": {"conditions": None}}, None, id="null removes the list"),
    ],
)
def test_strategic_merge_of_a_list_with_a_key(patch: dict[str, Any], expected: object) -> None:
    before = copy.deepcopy(NODE)
    merged = strategic_merge_patch("Node", NODE, patch)
    assert merged is not None
    assert merged["status"].get("conditions") == expected
    assert before == NODE


@pytest.mark.parametrize(
    ("kind", "target", "patch", "expected"),
    [
        pytest.param(
            "Service",
            {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}},
            {"spec": {"ports": [{"port": 80, "name": "c"}, {"port": 82, "name": "d"}]}},
            {
                "spec": {
                    "ports": [{"port": 80, "name": "c"}, {"port": 82, "name": "d"}, {"port": 81, "name": "b"}]
                }
            },
            id="as a real server orders ports",
        ),
        pytest.param(
            "EndpointSlice", {"ports": [{"port": 1}]}, {"ports": [{"port": 2}]}, {"ports": [{"port": 2}]}
        ),
        pytest.param(
            "Node", NODE["status"], {"images": []}, {**NODE["status"], "images": []}, id="atomic list"
        ),
        pytest.param("Node", {"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {}, id="delete a map"),
        pytest.param("Node", {"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        pytest.param("Pod", {"s": {"a": 1, "b": 2}}, {"s": {"$retainKeys": ["b"], "b": 3}}, {"s": {"b": 3}}),
        pytest.param(
            "Pod",
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b"]}},
        ),
        pytest.param(
            "Pod",
            {"metadata": {"finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b", "a"]}},
            {"metadata": {"finalizers": ["b", "a"]}},
        ),
        pytest.param(
            "Pod",
            {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}},
            {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}]}},
            {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}]}},
            id="lists in lists",
        ),
    ],
)
def test_strategic_merge(kind: str, target: Any, patch: Any, expected: Any) -> None:
    assert strategic_merge_patch(kind, target, patch) == expected


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"status": {"conditions": [{"status": "no key"}]}}, 500),
        ({"status": {"conditions": "text"}}, 422),
        ({"status": {"conditions": [{"type": {}}]}}, 422),
        ({"$patch": "explode"}, 400),
        ({"$patch": "delete"}, 422),
        ([], 400),
    ],
)
def test_strategic_merge_that_does_not_apply(patch: object, code: int) -> None:
    with pytest.raises(PatchError) as refused:
        apply_patch(PatchType.STRATEGIC, "Node", NODE, patch)
    assert refused.value.code == code


def test_a_merge_patch_is_an_object() -> None:
    with pytest.raises(PatchError) as refused:
        apply_patch(PatchType.MERGE, "Node", NODE, [])
    assert refused.value.code == 400
