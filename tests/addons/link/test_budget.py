"""What round trips make of a server's time-outs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.link.budget import LONGEST, OPENING, PROBE_INTERVAL, PROBE_TIMEOUT, Budget, parse_duration

SECONDS = st.floats(0.0, 100.0)


def budget_of(*round_trips: float) -> Budget:
    budget = Budget()
    for each in round_trips:
        budget.measured(each)
    return budget


def test_what_nobody_has_measured_has_the_least_time() -> None:
    budget = budget_of()
    assert (budget.silence, budget.distance) == (PROBE_TIMEOUT, 0.0)
    assert budget.first_silence == PROBE_INTERVAL + PROBE_TIMEOUT


@pytest.mark.parametrize(
    ("round_trips", "smoothed", "silence"),
    [
        ([0.05], 0.05, PROBE_TIMEOUT),
        ([2.0], 2.0, 2.0 + 4 * 1.0),  # RFC 6298, 2.2: the first variance is half of the round trip
        ([2.0, 4.0], 2.25, 2.25 + 4 * (0.75 * 1.0 + 0.25 * 2.0)),  # 2.3
        ([3.0] * 50, 3.0, 9.0 - PROBE_INTERVAL),
    ],
)
def test_round_trips_are_smoothed(round_trips: list[float], smoothed: float, silence: float) -> None:
    budget = budget_of(*round_trips)
    assert budget.round_trip == pytest.approx(smoothed)
    assert budget.silence == pytest.approx(silence)


def test_a_slow_handshake_is_soon_forgotten() -> None:
    """All nodes come back at once, and a server takes seconds for each handshake."""
    budget = budget_of(4.0)
    for _ in range(20):
        budget.answered(0.05)
    assert budget.silence == PROBE_TIMEOUT


def test_the_work_of_a_server_is_no_round_trip() -> None:
    budget = budget_of(0.05)
    for _ in range(20):
        budget.answered(30.0)
    assert budget.round_trip == 0.05
    unmeasured = budget_of()
    unmeasured.answered(30.0)
    assert unmeasured.round_trip is None


@given(st.lists(SECONDS, min_size=1, max_size=50))
def test_no_time_is_shorter_than_asked_for_or_longer_than_the_bound(round_trips: list[float]) -> None:
    budget = budget_of(*round_trips)
    assert PROBE_TIMEOUT <= budget.silence <= LONGEST
    assert budget.silence <= budget.first_silence <= LONGEST
    assert OPENING <= budget.opening <= LONGEST
    assert budget.distance <= LONGEST


@given(SECONDS)
def test_a_link_that_stays_as_it_is_has_thrice_its_round_trip(round_trip: float) -> None:
    budget = budget_of(*[round_trip] * 60)
    noticed = budget.interval + budget.silence
    assert noticed == pytest.approx(min(max(5.9, 3 * round_trip), PROBE_INTERVAL + LONGEST), abs=0.01)


@pytest.mark.parametrize("text", ["0.5", "2", "30"])
def test_an_operator_gives_seconds_with_a_fraction(text: str) -> None:
    assert parse_duration("hub_probe_interval", text) == float(text)


@pytest.mark.parametrize("text", ["", "x", "0.4", "-1", "31", "nan", "inf"])
def test_seconds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hub_probe_interval is 0.5 to 30 seconds, not"):
        parse_duration("hub_probe_interval", text)
