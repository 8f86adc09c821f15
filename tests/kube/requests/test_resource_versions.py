"""resourceVersions: the texts that are numbers, and the refusals of all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.resource_versions import parse_version


@pytest.mark.parametrize(
    ("text", "number"), [("", 0), ("0", 0), ("1", 1), ("12345", 12345), ("18446744073709551615", 2**64 - 1)]
)
def test_valid_versions_are_parsed(text: str, number: int) -> None:
    assert parse_version(text) == number


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("abc", "invalid syntax"),
        ("-1", "invalid syntax"),
        ("+1", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("1 ", "invalid syntax"),
        ("1\n", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("0x10", "invalid syntax"),
        ("1.0", "invalid syntax"),
        ("007", "invalid syntax"),
        ("00", "invalid syntax"),
        ("\u0661", "invalid syntax"),  # a digit for str.isdigit and int(), but not for Go
        ("\u00b2", "invalid syntax"),  # a digit for str.isdigit only
        ("18446744073709551616", "value out of range"),
        ("9" * 100_000, "value out of range"),
    ],
)
def test_a_malformed_version_is_a_value_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^strconv.ParseUint: parsing .*: {why}$"):
        parse_version(text)


def test_a_hostile_text_is_quoted() -> None:
    with pytest.raises(ValueError, match=r'parsing "1\\n\\x00": invalid syntax'):
        parse_version("1\n\0")


@given(st.text() | st.from_regex(r"[-+0-9_ ]*"))
def test_any_text_is_a_version_in_one_spelling_or_a_value_error(text: str) -> None:
    try:
        number = parse_version(text)
    except ValueError:
        return
    assert str(number) == (text or "0")
