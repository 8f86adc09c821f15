"""Quantities as the API server stores them."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.bindings.rendering.quantities import parse_quantity, same_quantity


@pytest.mark.parametrize("value", ["", ".", "m", "1 Gi", "1mi", "1Ki ", "one", True, None, [], {}, "9" * 100])
def test_others_are_none(value: Any) -> None:
    assert parse_quantity(value) is None


@pytest.mark.parametrize(
    ("left", "right", "path", "same"),
    [
        ("1", "1000m", ("containers", "resources", "limits", "cpu"), True),
        ("1Gi", 1073741824, ("requests", "memory"), True),
        ("1Gi", "1024Mi", ("emptyDir", "sizeLimit"), True),
        ("1", "2", ("limits", "cpu"), False),
        ("x", "x", ("limits", "cpu"), False),
        # A text that looks like a quantity, elsewhere.
        ("1", "1000m", ("env", "name=A", "value"), False),
        ("1", "1000m", (), False),
    ],
)
def test_quantities_are_compared_where_they_stand(
    left: Any, right: Any, path: tuple[str, ...], same: bool
) -> None:
    assert same_quantity(left, right, path) is same
