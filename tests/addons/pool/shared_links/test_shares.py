"""How fast lent ways carry: the share of one borrower, of all, and the lender's own traffic before them."""

from __future__ import annotations

from addons.pool.shared_links.shares import AHEAD, OF_BORROWER, LentRates

RATE = 1000
"""Kilobytes a second."""
SECOND = 1_000_000
"""Bytes that the rate carries in a second."""


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_one_borrower_has_a_part_of_what_is_lent() -> None:
    shares = LentRates(RATE, Clock())
    assert shares.wait("a", SECOND // 2) == 0.5 * OF_BORROWER
    assert shares.wait("a", SECOND // 2) == 1.0 * OF_BORROWER, "the next piece waits behind the first"


def test_all_borrowers_together_have_the_rate() -> None:
    shares = LentRates(RATE, Clock())
    waits = [shares.wait(each, SECOND) for each in "abcd"]
    assert waits == [2.0, 2.0, 3.0, 4.0]


def test_nothing_is_owed_for_time_that_nobody_used() -> None:
    clock = Clock()
    shares = LentRates(RATE, clock)
    shares.wait("a", SECOND)
    clock.now += 100.0
    assert shares.wait("a", SECOND // 2) == 1.0


def test_the_lenders_own_traffic_goes_first_and_shuts_nobody_out() -> None:
    shares = LentRates(RATE, Clock())
    shares.own(SECOND // 2)
    assert round(shares.wait("a", SECOND // 10), 6) == 0.6
    shares.own(100 * SECOND)
    assert round(shares.wait("b", SECOND // 10), 6) == AHEAD + 0.1, (
        "a borrower waits a second, whatever passes"
    )


def test_a_borrower_that_left_owes_nothing() -> None:
    clock = Clock()
    shares = LentRates(RATE, clock)
    shares.wait("a", 10 * SECOND)
    shares.forget("a")
    clock.now += 10.0
    assert shares.wait("a", SECOND // 2) == 1.0
