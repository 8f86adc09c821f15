"""Equality of JSON values follows JSON, not Python."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_type import same_json


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (1, 1.0, True),
        (True, 1, False),
        ([0], [False], False),
        ({"a": None}, {}, False),
        ([1], [1, 2], False),
    ],
)
def test_json_values_are_equal_only_with_the_same_type(left: Any, right: Any, is_same: bool) -> None:
    assert same_json(left, right) is same_json(right, left) is is_same
