"""Text in Go's quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.quoting import quoted


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("", '""'),
        ("abc1", '"abc1"'),
        ("a b", '"a b"'),
        ('"\\', r'"\"\\"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\0\x7f", r'"\x00\x7f"'),
        ("é", '"é"'),
        ("a\u00a0=", r'"a\u00a0="'),
        ("\U000e0001", r'"\U000e0001"'),
    ],
)
def test_text_is_quoted_like_in_go(text: str, quote: str) -> None:
    assert quoted(text) == quote


@given(st.text())
def test_a_quoted_text_is_printable(text: str) -> None:
    assert quoted(text).isprintable()
