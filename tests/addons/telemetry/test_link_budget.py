"""Metrics of a hub: bytes by component and of the link, the link budget, bounded labels, and failed tasks."""

from __future__ import annotations

import asyncio
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.chain import FILTERS
from addons.telemetry import metrics
from addons.telemetry.background import background
from addons.telemetry.component_traffic import MAX_COMPONENTS, MAX_READS, ComponentTraffic, Totals
from addons.telemetry.labels import (
    GROUPS,
    OTHER,
    RESOURCES,
    VERBS,
    BoundedLabels,
    group_resource_label,
    resource_label,
    verb_label,
)
from addons.telemetry.link_budget import LinkBudget, Spending, parse_link_budget
from tests.addons.support.observed import value_of

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
def test_a_budget_is_bytes_for_a_day_or_a_month(text: str, budget: LinkBudget, said: str) -> None:
    assert parse_link_budget("hub_link_budget", text) == budget
    assert budget.summary(1_000_000) == said


def test_an_empty_budget_is_none() -> None:
    assert parse_link_budget("hub_link_budget", "") is None


@pytest.mark.parametrize(
    "text", ["20", "20MB", "20MB/week", "0MB/day", "-1MB/day", "20mb/day", "1e9kB/day", "MB/day"]
)
def test_a_malformed_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hub_link_budget"):
        parse_link_budget("hub_link_budget", text)


def test_a_spent_budget_is_reported_once_per_period() -> None:
    spending = Spending(LinkBudget(1000, "day"))
    assert not spending.count(1000, MONDAY)
    assert spending.count(1001, MONDAY)
    assert not spending.count(5000, MONDAY)
    assert spending.spent == 5000
    assert not spending.count(5100, TUESDAY)
    assert spending.spent == 100
    assert spending.count(6101, TUESDAY)


def test_spending_of_a_month_accumulates_over_days() -> None:
    spending = Spending(LinkBudget(1000, "month"))
    spending.count(600, datetime.date(2026, 11, 1))
    assert spending.count(1200, MONDAY)
    assert not spending.count(1300, TUESDAY)
    assert (spending.spent, spending.period) == (100, "2026-12")


def test_spending_continues_after_a_restart() -> None:
    first = Spending(LinkBudget(1000, "day"))
    first.count(1500, MONDAY)
    second = Spending(LinkBudget(1000, "day"))
    second.load_counts(first.dump())
    assert not second.count(50, MONDAY), "it was told"
    assert second.spent == 1550
    third = Spending(LinkBudget(1000, "day"))
    third.load_counts(first.dump())
    third.count(70, TUESDAY)
    assert third.spent == 70


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"period":"x","bytes":"y","told":true}'])
def test_a_malformed_count_is_zero(text: bytes) -> None:
    spending = Spending(LinkBudget(1000, "day"))
    spending.load_counts(text)
    spending.count(10, MONDAY)
    assert spending.spent == 10


class Clock:
    def __init__(self) -> None:
        self.time = datetime.datetime(2026, 3, 1, 22, 0).astimezone()

    def __call__(self) -> float:
        return self.time.timestamp()

    def pass_minutes(self, minutes: float) -> None:
        self.time += datetime.timedelta(minutes=minutes)


def test_only_the_last_hour_is_counted() -> None:
    clock = Clock()
    traffic = ComponentTraffic(clock)
    traffic.began("kubelet", "pods", is_error=False, is_watch=False).totals.sent += 100
    clock.pass_minutes(30)
    traffic.began("kubelet", "pods", is_error=True, is_watch=False).totals.sent += 7
    assert traffic.last_hour() == {"kubelet": Totals(requests=2, errors=1, sent=107)}
    clock.pass_minutes(31)
    assert traffic.last_hour() == {"kubelet": Totals(requests=1, errors=1, sent=7)}
    clock.pass_minutes(60)
    traffic.began("edgehub", "", is_error=False, is_watch=False)
    assert set(traffic.last_hour()) == {"edgehub"}


def test_the_bytes_of_today_start_at_midnight() -> None:
    clock = Clock()
    traffic = ComponentTraffic(clock)
    metrics.UPSTREAM_BYTES.labels("down", "https://a").inc(50)
    metrics.UPSTREAM_BYTES.labels("up", "https://a").inc(5)
    assert traffic.link_today() == (5, 50)
    clock.pass_minutes(121)
    assert traffic.link_today() == (0, 0)


def test_bytes_of_the_hub_itself_are_not_counted_as_sent_to_components() -> None:
    traffic = ComponentTraffic()
    traffic.began("edgehub", "", is_error=False, is_watch=False).totals.sent += 100
    traffic.began("kubelet", "", is_error=False, is_watch=False).totals.sent += 3
    assert traffic.sent() == 3


def test_counted_component_names_and_resources_are_bounded() -> None:
    traffic = ComponentTraffic()
    for number in range(MAX_COMPONENTS + 50):
        traffic.began(f"c{number}", "", is_error=False, is_watch=False)
    assert len(traffic.components()) == MAX_COMPONENTS + 1
    assert traffic.components()["other"].totals.requests == 50
    for number in range(MAX_READS + 50):
        traffic.began("c1", f"r{number}", is_error=False, is_watch=False)
    assert len(traffic.components()["c1"].reads) == MAX_READS


@pytest.mark.parametrize(("resource", "label"), [("pods", "pods"), ("", ""), ("widgets", "other")])
def test_a_resource_outside_the_table_has_the_label_other(resource: str, label: str) -> None:
    assert resource_label(resource) == label


@pytest.mark.parametrize(
    ("verb", "label"), [("watch", "watch"), ("post", "post"), ("", "other"), ("brew", "other")]
)
def test_a_verb_outside_the_table_has_the_label_other(verb: str, label: str) -> None:
    assert verb_label(verb) == label


@pytest.mark.parametrize(
    ("group", "resource", "label"),
    [
        ("", "pods", "pods"),
        ("discovery.k8s.io", "endpointslices", "endpointslices.discovery.k8s.io"),
        ("invented.io", "pods", "other"),
        ("apps", "inventions", "other"),
    ],
)
def test_labels_of_resources_include_their_group(group: str, resource: str, label: str) -> None:
    assert group_resource_label(group, resource) == label


def test_groups_and_resources_that_filters_name_have_labels() -> None:
    assert {group for each in FILTERS for group, _ in each.resources} <= GROUPS
    assert {resource for each in FILTERS for _, resource in each.resources} <= RESOURCES


@given(st.text())
def test_any_other_text_has_the_label_other(text: str) -> None:
    assert verb_label(text) in {*VERBS, "other"}
    assert resource_label(text) in {*RESOURCES, "", "other"}


def test_labels_from_clients_are_bounded() -> None:
    labels = BoundedLabels(limit=2)
    assert [labels.label(name) for name in ("a", "b", "c")] == ["a", "b", OTHER]
    assert labels.label("a") == "a", "who was first keeps a label"


async def test_failed_background_work_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no disk")

    failures = metrics.HOOK_ERRORS.labels("edgehub-background", "task")
    before = value_of(failures)
    with pytest.raises(OSError, match="no disk"):
        await background(fail(), "replay of the journal")
    assert "replay of the journal failed" in caplog.text
    assert value_of(failures) == before + 1


async def test_cancelled_background_work_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    task = background(asyncio.sleep(60), "garbage")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert not caplog.text
