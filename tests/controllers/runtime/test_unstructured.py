"""Malformed values in unstructured objects are read as absent."""

from __future__ import annotations

import pytest

from controllers.runtime.unstructured import copied, mapping, metadata, number, objects, text, texts


@pytest.mark.parametrize("garbage", [None, 5, "x", [1], True])
def test_a_value_other_than_a_mapping_is_read_as_empty(garbage: object) -> None:
    assert mapping(garbage) == {}
    assert texts(garbage) == {}
    assert metadata({"metadata": garbage}) == {}


def test_values_of_the_expected_type_are_returned() -> None:
    assert texts({"a": "b", "c": 1, "d": None}) == {"a": "b"}
    assert objects([{"a": 1}, None, "x"]) == [{"a": 1}]
    assert objects({"a": 1}) == []
    assert (text("a"), text(None), text(5)) == ("a", "", "")
    assert (number(5), number(True), number("5"), number(None, 7)) == (5, 0, 0, 7)


def test_a_copy_is_equal_and_independent() -> None:
    value = {"a": [{"b": None}, 1, 2.5, "x", True]}
    copy = copied(value)
    assert copy == value
    copy["a"][0]["b"] = 1
    assert value["a"][0] == {"b": None}
