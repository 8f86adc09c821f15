"""Parsing costs a bounded time for each character: a selector of 4 MB once stopped kubelet for 11.8 s."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.requests.query import parse_duration
from kube.requests.request_info import parse_request, validate_list_options
from kube.requests.selectors import MAX_SELECTOR, parse_field_selector, parse_label_selector
from tests.support.cpu_time import own_seconds

SIZE = 16 * 1024
"""Characters: twice the longest target that the hub takes."""
BOUND = 50e-6
"""Seconds of this process for each character: some ten times what the parsers need, a tenth of what squares would."""

UNITS = st.text("aA0-_./,=!()<> \\\t\0%&;+in", min_size=1, max_size=5)


def parse_target(text: str) -> None:
    info = parse_request("GET", f"/api/v1/services?labelSelector={text}&fieldSelector={text}")
    validate_list_options(info.options)


def parse_path(text: str) -> None:
    parse_request("GET", f"/api/v1/namespaces/{text}/services/{text}")


PARSERS: dict[str, Callable[[str], object]] = {
    "label selector": parse_label_selector,
    "field selector": parse_field_selector,
    "duration": parse_duration,
    "query": parse_target,
    "path": parse_path,
}


def seconds(parse: Callable[[str], object], text: str) -> float:
    def refused_or_not() -> None:
        with suppress(ValueError, StatusError):
            parse(text)

    return own_seconds(refused_or_not)


@pytest.mark.parametrize("parser", PARSERS)
@settings(max_examples=40, deadline=None)
@given(st.text("a=(", max_size=2), UNITS, st.text("a)-!", max_size=2))
@example("", "a,", "a")
@example("a in (", "b,", ")")
@example("", "a-", "!")
@example("", "a.", "-")
@example("", "a!=b,", "")
@example("", "\\,", "")
@example("", "1h", "")
@example("", "%41", "")
@example("", "/", "")
def test_cost_grows_with_the_length_and_no_faster(parser: str, head: str, unit: str, tail: str) -> None:
    text = head + unit * (SIZE // len(unit)) + tail
    assert seconds(PARSERS[parser], text) < BOUND * len(text)


@pytest.mark.parametrize("parse", [parse_label_selector, parse_field_selector])
def test_a_selector_over_the_limit_is_refused_unread(parse: Callable[[str], object]) -> None:
    def refused() -> None:
        with pytest.raises(ValueError, match="longer than"):
            parse("a," * 2_000_000)

    assert own_seconds(refused) < 0.5
    with suppress(ValueError):
        parse("a" * MAX_SELECTOR)


VALUES = [f"v{number}" for number in range(3_000)]
SELECTORS: dict[str, Callable[[], object]] = {
    "in": partial(parse_label_selector(f"app in ({','.join(VALUES)})").matches, {"app": "w"}),
    "not in": partial(parse_label_selector(f"app notin ({','.join(VALUES)})").matches, {"app": "w"}),
    "not equal": partial(
        parse_label_selector(",".join(f"app!={each}" for each in VALUES)).matches, {"app": "w"}
    ),
    "field": partial(parse_field_selector(",".join(f"f!={each}" for each in VALUES)).matches, str.upper),
}


@pytest.mark.parametrize("selector", SELECTORS)
def test_matching_costs_the_same_for_many_values_of_one_key(selector: str) -> None:
    matches = SELECTORS[selector]

    def matched() -> None:
        for _ in range(10_000):
            assert matches() is (selector != "in")

    assert own_seconds(matched) < 1
