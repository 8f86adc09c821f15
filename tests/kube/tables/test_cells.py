"""Ages, selectors and shortened lists, formatted like by kubectl."""

from __future__ import annotations

import pytest

from kube.tables.cells import aligned, duration, human_duration, selector, shortened, since, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (11 * 60, "11m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 240, "3h4m"),
        (40 * 3600, "40h"),
        (50 * 3600, "2d2h"),
        (100 * 86400, "100d"),
        (800 * 86400, "2y70d"),
        (4000 * 86400, "10y"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize("created", [None, "", "yesterday"])
def test_an_object_without_a_time_has_an_unknown_age(created: str | None) -> None:
    assert since(created) == "<unknown>"


def test_a_selector_is_written_in_the_order_of_its_keys() -> None:
    expressions = [
        {"key": "c", "operator": "In", "values": ["z", "y"]},
        {"key": "d", "operator": "DoesNotExist"},
        {"key": "b", "operator": "Exists"},
    ]
    assert selector({"matchLabels": {"a": "x"}, "matchExpressions": expressions}) == "a=x,b,c in (y,z),!d"


@pytest.mark.parametrize(
    ("texts", "cell"), [((), "<unset>"), ("abc", "a,b,c"), ("abcde", "a,b,c + 2 more...")]
)
def test_a_long_list_is_counted(texts: tuple[str, ...], cell: str) -> None:
    assert shortened(texts) == cell


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (812, "812 B"), (1536, "1.5 KiB"), (200_000, "195 KiB"), (5 * 2**30, "5.0 GiB")],
)
def test_sizes_are_formatted_with_binary_units(count: int, said: str) -> None:
    assert size(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0s"), (59.4, "59s"), (60, "1m0s"), (200, "3m20s"), (7500, "2h5m"), (90_000, "25h0m")],
)
def test_durations_are_formatted(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_columns_have_the_minimum_width() -> None:
    rows = [("NAME", "BYTES"), ("a", "7"), ("longer", "")]
    assert aligned(rows) == ["NAME    BYTES", "a       7", "longer"]
    assert aligned(rows, " ", numbers=(1,)) == ["NAME   BYTES", "a          7", "longer"]
    with pytest.raises(ValueError, match="argument 2 is"):
        aligned([("a",), ("b", "c")])
