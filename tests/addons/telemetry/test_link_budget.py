"""The budget of the link: how it is written, its periods, and when it is told."""

from __future__ import annotations

import datetime

import pytest

from addons.telemetry.link_budget import LinkBudget, Spending, parse_link_budget

MONDAY = datetime.date(2026, 11, 30)
TUESDAY = datetime.date(2026, 12, 1)


@pytest.mark.parametrize(
    ("text", "budget", "said"),
    [
        ("20MB/day", LinkBudget(20_000_000, "day"), "1.0 of 20 MB a day"),
        ("0.5GB/month", LinkBudget(500_000_000, "month", "GB"), "0.0 of 0.5 GB a month"),
        (" 300kB/day ", LinkBudget(300_000, "day", "kB"), "1000.0 of 300 kB a day"),
    ],
)
def test_a_budget_is_so_much_a_day_or_a_month(text: str, budget: LinkBudget, said: str) -> None:
    assert parse_link_budget("hub_link_budget", text) == budget
    assert budget.told(1_000_000) == said


def test_no_budget_is_none() -> None:
    assert parse_link_budget("hub_link_budget", "") is None


@pytest.mark.parametrize(
    "text", ["20", "20MB", "20MB/week", "0MB/day", "-1MB/day", "20mb/day", "1e9kB/day", "MB/day"]
)
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hub_link_budget"):
        parse_link_budget("hub_link_budget", text)


def test_it_is_told_once_in_a_period() -> None:
    spending = Spending(LinkBudget(1000, "day"))
    assert not spending.count(1000, MONDAY)
    assert spending.count(1001, MONDAY)
    assert not spending.count(5000, MONDAY)
    assert spending.spent == 5000
    assert not spending.count(5100, TUESDAY)
    assert spending.spent == 100
    assert spending.count(6101, TUESDAY)


def test_a_month_goes_on_over_days() -> None:
    spending = Spending(LinkBudget(1000, "month"))
    spending.count(600, datetime.date(2026, 11, 1))
    assert spending.count(1200, MONDAY)
    assert not spending.count(1300, TUESDAY)
    assert (spending.spent, spending.period) == (100, "2026-12")


def test_a_restart_goes_on_where_the_last_process_was() -> None:
    first = Spending(LinkBudget(1000, "day"))
    first.count(1500, MONDAY)
    second = Spending(LinkBudget(1000, "day"))
    second.take(first.kept())
    assert not second.count(50, MONDAY), "it was told"
    assert second.spent == 1550
    third = Spending(LinkBudget(1000, "day"))
    third.take(first.kept())
    third.count(70, TUESDAY)
    assert third.spent == 70


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b"{}", b'{"period":"x","bytes":"y","told":true}'])
def test_what_cannot_be_read_counts_as_nothing(kept: bytes) -> None:
    spending = Spending(LinkBudget(1000, "day"))
    spending.take(kept)
    spending.count(10, MONDAY)
    assert spending.spent == 10
