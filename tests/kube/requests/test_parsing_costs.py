"""Parsing selectors takes bounded time: one of 4 MB once blocked kubelet for 11.8 s. See also
`tests/fuzz/test_cost.py`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from kube.requests.selectors import MAX_SELECTOR, parse_field_selector, parse_label_selector
from tests.support.cpu_time import own_seconds


@pytest.mark.parametrize("parse", [parse_label_selector, parse_field_selector])
def test_a_selector_over_the_limit_is_refused_unparsed(parse: Callable[[str], object]) -> None:
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
def test_matching_takes_the_same_time_for_many_values_of_one_key(selector: str) -> None:
    matches = SELECTORS[selector]

    def matched() -> None:
        for _ in range(10_000):
            assert matches() is (selector != "in")

    assert own_seconds(matched) < 1
