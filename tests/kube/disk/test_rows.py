"""A value is returned only under its own key, and unchanged."""

from __future__ import annotations

import pytest

from kube.disk.rows import checked, checksum, join

KEY = join("v", "t", "name")
ROW = checksum(KEY, b"value") + b"value"


@pytest.mark.parametrize(
    ("key", "found", "value"),
    [
        (KEY, ROW, b"value"),
        (join("v", "t", "other"), ROW, None),
        (KEY, ROW[:-1], None),
        (KEY, b"", None),
        (KEY, None, None),
        (KEY, "text", None),
    ],
)
def test_a_row_is_valid_only_under_its_own_key_and_unchanged(
    key: str, found: object, value: bytes | None
) -> None:
    assert checked(key, found) == value
