"""What is counted of each component, with a clock that the test moves."""

from __future__ import annotations

import datetime

from addons.telemetry import metrics
from addons.telemetry.component_traffic import MAX_COMPONENTS, MAX_READS, ComponentTraffic, Totals


class Clock:
    """A time of day."""

    def __init__(self) -> None:
        self.time = datetime.datetime(2026, 3, 1, 22, 0).astimezone()

    def __call__(self) -> float:
        return self.time.timestamp()

    def pass_minutes(self, minutes: float) -> None:
        self.time += datetime.timedelta(minutes=minutes)


def test_the_last_hour_alone_counts() -> None:
    clock = Clock()
    traffic = ComponentTraffic(clock)
    traffic.began("kubelet", "pods", 200, is_watch=False).totals.sent += 100
    clock.pass_minutes(30)
    traffic.began("kubelet", "pods", 503, is_watch=False).totals.sent += 7
    assert traffic.last_hour() == {"kubelet": Totals(requests=2, errors=1, sent=107)}
    clock.pass_minutes(31)
    assert traffic.last_hour() == {"kubelet": Totals(requests=1, errors=1, sent=7)}
    clock.pass_minutes(60)
    traffic.began("edgehub", "", 200, is_watch=False)
    assert set(traffic.last_hour()) == {"edgehub"}


def test_today_begins_at_midnight() -> None:
    clock = Clock()
    traffic = ComponentTraffic(clock)
    metrics.UPSTREAM_BYTES.labels("down", "https://a").inc(50)
    metrics.UPSTREAM_BYTES.labels("up", "https://a").inc(5)
    assert traffic.link_today() == (5, 50)
    clock.pass_minutes(121)
    assert traffic.link_today() == (0, 0)


def test_what_the_hub_gets_is_not_sent_to_components() -> None:
    traffic = ComponentTraffic()
    traffic.began("edgehub", "", 200, is_watch=False).totals.sent += 100
    traffic.began("kubelet", "", 200, is_watch=False).totals.sent += 3
    assert traffic.sent() == 3


def test_names_and_resources_are_bounded() -> None:
    traffic = ComponentTraffic()
    for number in range(MAX_COMPONENTS + 50):
        traffic.began(f"c{number}", "", 200, is_watch=False)
    assert len(traffic.components()) == MAX_COMPONENTS + 1
    assert traffic.components()["other"].totals.requests == 50
    for number in range(MAX_READS + 50):
        traffic.began("c1", f"r{number}", 200, is_watch=False)
    assert len(traffic.components()["c1"].reads) == MAX_READS
