"""Rates and the last hours on the status page, and how values become HTML."""

from __future__ import annotations

import datetime

import pytest

from addons.telemetry import metrics
from addons.telemetry.component_traffic import ComponentTraffic
from addons.ui.page.markup import NO_VALUE, lines, options, table, text
from addons.ui.page.timeline import BARS, MINUTE, MINUTES, MINUTES_PER_BAR, SPAN, Rates, Timeline
from addons.ui.reports.text import Column, Row
from addons.ui.running_hub import RunningHub
from tests.addons.support.hub_world import HubWorld


class Hours:
    """A timeline whose minutes pass with `pass_on`."""

    def __init__(self, parts: HubWorld) -> None:
        self.hub: RunningHub = parts.running_hub()
        # The link has been up for a long time.
        self.hub.records.link.since -= datetime.timedelta(hours=9)
        self.now = 60_000_000.0
        self.timeline = Timeline(self.hub, lambda: self.now)

    def pass_on(self, minutes: int = 1) -> None:
        for _ in range(minutes):
            self.now += MINUTE
            self.timeline.tick()


async def test_there_are_no_bars_before_the_end_of_the_first_minute(parts: HubWorld) -> None:
    assert "<svg" not in Hours(parts).timeline.html()


async def test_a_bar_shows_bytes_requests_and_minutes_without_the_cloud(parts: HubWorld) -> None:
    hours = Hours(parts)
    hours.pass_on(MINUTES_PER_BAR)
    hours.hub.cloud.servers[0].failed("gone")
    metrics.UPSTREAM_BYTES.labels("down", "https://a:6443").inc(2048)
    hours.hub.records.traffic.began("kubelet", "pods", is_error=False, is_watch=False)
    hours.pass_on(MINUTES_PER_BAR - 1)
    html = hours.timeline.html()
    assert html.count("<g>") == 2
    assert html.count('class="away"') == 1
    assert ": 2.0 KiB, 1 request, 4 minutes without the cloud</title>" in html
    assert "The last 9 min: 4 minutes without the cloud, 2.0 KiB over the link, 1 request." in html


async def test_an_outage_within_a_minute_is_shown(parts: HubWorld) -> None:
    hours = Hours(parts)
    hours.pass_on()
    hours.hub.records.link.changed()
    hours.pass_on()
    assert [each.was_up for each in hours.timeline.minutes] == [True, False]


async def test_the_timeline_retains_its_last_hours(parts: HubWorld) -> None:
    hours = Hours(parts)
    hours.pass_on(MINUTES + 7)
    assert len(hours.timeline.minutes) == MINUTES
    assert hours.timeline.html().count("<g>") == BARS


def test_a_rate_covers_the_time_since_the_last_sample() -> None:
    times = [0.0]
    traffic = ComponentTraffic()
    rates = Rates(traffic, lambda: times[0])
    assert rates.now() == (None, None, None)
    traffic.began("kubelet", "", is_error=False, is_watch=False).totals.sent += 1000
    metrics.UPSTREAM_BYTES.labels("down", "https://a").inc(500)
    times[0] = SPAN / 2
    assert rates.now() == (None, None, None), "too soon"
    times[0] = 10.0
    assert rates.now() == pytest.approx((100.0, 50.0, 0.0))
    times[0] = 10.5
    assert rates.now() == pytest.approx((100.0, 50.0, 0.0)), "as a moment ago"
    times[0] = 20.0
    assert rates.now() == (0.0, 0.0, 0.0)


EVIL = "<script>alert('x')</script>\""
SAFE = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;"


@pytest.mark.parametrize(
    ("value", "said"), [(EVIL, SAFE), (None, NO_VALUE), ([], NO_VALUE), (["a", "<"], "a, &lt;"), (0, "0")]
)
def test_values_are_rendered_as_escaped_text(value: object, said: str) -> None:
    assert text(value) == said


def test_values_are_escaped_in_every_element() -> None:
    made = [
        table([{"a": EVIL}], ((EVIL, lambda row: row["a"]),), lambda _: EVIL),
        options([EVIL], EVIL, EVIL),
        lines([EVIL]),
    ]
    for html in made:
        assert "<script" not in html
        assert "alert" in html


def test_a_cell_names_its_column_and_an_empty_table_shows_a_note() -> None:
    html = table([{"a": 1}], (("count", lambda row: row["a"]),), lambda _: "bad")
    assert '<td data-label="count" class="number">1</td>' in html
    assert '<tr class="bad">' in html
    assert "none" in table([], ())


def test_the_selected_value_is_added_if_it_is_not_a_choice() -> None:
    html = options(["a", "b", "a"], "c", "choose")
    assert (
        html
        == '<option value="">choose</option><option>a</option><option>b</option><option selected>c</option>'
    )


@pytest.mark.parametrize(
    ("values", "is_number"),
    [([1, 20], True), (["812 B", "1.5 MiB"], True), (["4s", "2h5m", "-"], True), ([1, "one"], False)],
)
def test_numbers_are_right_aligned(values: list[object], is_number: bool) -> None:
    rows: list[Row] = [{"a": each} for each in values]
    html = table(rows, (("a", lambda row: row["a"]),))
    assert html.count('class="number"') == (len(values) + 1 if is_number else 0)


def test_a_column_without_values_is_omitted() -> None:
    rows: list[Row] = [{"a": "x", "b": "", "c": "-"}, {"a": "y", "b": [], "c": None}]
    columns: list[Column] = [
        ("a", lambda row: row["a"]),
        ("b", lambda row: row["b"]),
        ("c", lambda row: row["c"]),
    ]
    html = table(rows, columns)
    assert [f'data-label="{each}"' in html for each in "abc"] == [True, False, False]
