"""Which parts of a target nobody is shown."""

from __future__ import annotations

import pytest

from addons.requests.masked_target import masked


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/api/v1/pods?limit=5", b"/api/v1/pods?limit=5"),
        (b"/exec?token=abc&x=1", b"/exec?token=hidden&x=1"),
        (b"/exec?x=1&Access_Token=abc#f", b"/exec?x=1&Access_Token=hidden#f"),
    ],
)
def test_tokens_in_the_query_are_hidden(target: bytes, shown: bytes) -> None:
    assert masked(target) == shown
