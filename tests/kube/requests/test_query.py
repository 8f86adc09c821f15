"""Query strings, numbers and durations, parsed like in Go."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.query import MAX_PAIRS, first_values, parse_duration, parse_integer

NAMES = frozenset({"limit", "labelSelector", "watch"})


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("", {}),
        ("limit=1", {"limit": "1"}),
        ("limit", {"limit": ""}),
        ("limit=", {"limit": ""}),
        ("limit=1=2", {"limit": "1=2"}),
        ("limit=1&limit=2", {"limit": "1"}),
        ("other=1&watch=true", {"watch": "true"}),
        ("&&&=&=x&limit=1", {"limit": "1"}),
        ("labelSelector=a%3Db+c", {"labelSelector": "a=b c"}),
        ("labelSelector=a%2Bb", {"labelSelector": "a+b"}),
        ("%6cimit=1", {"limit": "1"}),
        ("li%zzmit=1&limit=2", {"limit": "2"}),
        ("limit=%zz&limit=2", {"limit": "2"}),
        ("limit=%&limit=%3&limit=2", {"limit": "2"}),
        ("limit=1;watch=true&labelSelector=a", {"labelSelector": "a"}),
        ("limit=1%3B", {"limit": "1;"}),
        ("other=%ff&%ff=1&limit=1", {"limit": "1"}),
        ("labelSelector=é", {"labelSelector": "é"}),
    ],
)
def test_the_first_value_of_each_parameter_is_used(query: str, values: dict[str, str]) -> None:
    assert first_values(query, NAMES) == values


def test_a_value_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(ValueError, match="labelSelector is not valid UTF-8"):
        first_values("limit=1&labelSelector=%ff", NAMES)


def test_too_many_pairs_are_refused() -> None:
    assert first_values("limit=1" + "&" * (MAX_PAIRS - 1), NAMES) == {"limit": "1"}
    with pytest.raises(ValueError, match="number of URL query parameters exceeded limit"):
        first_values("limit=1" + "&" * MAX_PAIRS, NAMES)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("12", 12),
        ("-1", -1),
        ("+2", 2),
        ("000012", 12),
        ("0" * 10_000, 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integers_are_parsed_like_in_go(text: str, number: int) -> None:
    assert parse_integer(text) == number


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (text, "invalid syntax")
        for text in ["", "abc", "1.5", " 1", "1 ", "1\n", "0x1", "1_0", "--1", "\u0661"]
    ]
    + [
        (text, "value out of range") for text in ["9223372036854775808", "-9223372036854775809", "9" * 10_000]
    ],
)
def test_a_malformed_integer_is_a_value_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^strconv.ParseInt: parsing .*: {why}$"):
        parse_integer(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("10s", 10),
        ("1m30s", 90),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("5.s", 5),
        ("+5s", 5),
        ("-1.5s", -1.5),
        ("1h1h", 7200),
        ("300ms", 0.3),
        ("1us", 1e-6),
        ("1\u00b5s", 1e-6),
        ("1\u03bcs", 1e-6),
        ("1ns", 1e-9),
        ("00000000000000000000001s", 1),
        ("9223372036854775807ns", (2**63 - 1) / 10**9),
        ("-9223372036854775808ns", -(2**63) / 10**9),
        (f"0.{'9' * 1000}s", 0.999999999),
    ],
)
def test_durations_are_parsed_like_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=2e-9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'invalid duration ""'),
        ("abc", 'invalid duration "abc"'),
        ("-", 'invalid duration "-"'),
        (".s", 'invalid duration ".s"'),
        ("-.s", 'invalid duration "-.s"'),
        ("1s.", 'invalid duration "1s."'),
        ("10", 'missing unit in duration "10"'),
        ("1s10", 'missing unit in duration "1s10"'),
        ("+1", 'missing unit in duration "+1"'),
        ("5x", 'unknown unit "x" in duration "5x"'),
        ("5 s", 'unknown unit " s" in duration "5 s"'),
        ("1e3s", 'unknown unit "e" in duration "1e3s"'),
        ("2562048h", 'invalid duration "2562048h"'),
        ("9223372036854775808ns", 'invalid duration "9223372036854775808ns"'),
        ("99999999999999999999", 'invalid duration "99999999999999999999"'),
        ("9" * 10_000 + "s", 'invalid duration "9'),
    ],
)
def test_a_malformed_duration_is_a_value_error(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^time: {re.escape(why)}"):
        parse_duration(text)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(["h", "m", "s", "ms"])), min_size=1))
def test_a_duration_is_the_sum_of_its_units(steps: list[tuple[int, str]]) -> None:
    unit = {"h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
    total = sum(number * unit[name] for number, name in steps)
    text = "".join(f"{number}{name}" for number, name in steps)
    if total > Fraction(2**63 - 1, 10**9):
        with pytest.raises(ValueError, match="invalid duration"):
            parse_duration(text)
    else:
        assert parse_duration(text) == pytest.approx(float(total))
