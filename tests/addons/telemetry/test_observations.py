"""The last requests and events, within bounds, and those who are told of each."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from addons.telemetry import metrics
from addons.telemetry.observation import Observation
from addons.telemetry.observations import (
    MAX_HISTORY_BYTES,
    MAX_LINES,
    MAX_WAITING,
    PACKED_TOGETHER,
    Follower,
    Observations,
    WantedLines,
)

SEEN = Observation(
    *(
        0.0,
        "kube-proxy",
        "list",
        "endpointslices.discovery.k8s.io",
        "",
        "default",
        "web",
        "viewed",
        200,
        5,
        0.1,
    ),
    *("cloud", "view", "", 0, ()),
)


def seen(at: float = 0.0, **change: Any) -> Observation:
    return SEEN._replace(at=at, **change)


@pytest.mark.parametrize(
    ("wanted", "change", "has"),
    [
        (WantedLines(), {}, True),
        (WantedLines(), {"is_event": True}, False),
        (WantedLines(events=True), {"is_event": True}, True),
        (WantedLines(component="kubelet"), {}, False),
        (WantedLines(resource="endpointslices"), {}, True),
        (WantedLines(resource="endpointslices.discovery.k8s.io"), {}, True),
        (WantedLines(resource="endpoints"), {}, False),
        (WantedLines(namespace="kube-system"), {}, False),
        (WantedLines(verdict="filtered"), {}, False),
        (WantedLines(since=10.0), {"at": 9.0}, False),
        (WantedLines(since=10.0), {"at": 10.0}, True),
    ],
)
def test_which_lines_somebody_wants(wanted: WantedLines, change: dict[str, Any], has: bool) -> None:
    assert wanted.has(seen(**change)) is has


def test_the_past_has_requests_and_events_in_their_order() -> None:
    last = Observations()
    for at in (1.0, 2.0, 3.0):
        last.add(seen(at, is_event=at == 2.0))
    assert [each.at for each in last.past(WantedLines(events=True))] == [1.0, 2.0, 3.0]
    assert [each.at for each in last.past(WantedLines())] == [1.0, 3.0]


@pytest.mark.parametrize("name", ["web", "x" * 2000])
def test_what_is_remembered_is_bounded_in_lines_and_in_bytes(name: str) -> None:
    last = Observations()
    for at in range(MAX_LINES + 10):
        last.add(seen(float(at), name=name))
    left = list(last.past(WantedLines()))
    assert left[-1].at == MAX_LINES + 9
    assert len(left) <= MAX_LINES
    assert sum(each.size for each in left) <= MAX_HISTORY_BYTES


def test_what_is_remembered_is_few_objects() -> None:
    """Each full collection looks at all of them."""
    before = sum(isinstance(each, Observation) for each in gc.get_objects())
    last = Observations()
    for at in range(10 * PACKED_TOGETHER):
        last.add(seen(float(at)))
    assert sum(isinstance(each, Observation) for each in gc.get_objects()) - before < PACKED_TOGETHER
    assert [each.at for each in last.past(WantedLines())] == [*map(float, range(10 * PACKED_TOGETHER))]


def test_many_events_push_no_request_out() -> None:
    last = Observations()
    last.add(seen())
    for at in range(MAX_LINES + 1):
        last.add(seen(float(at), is_event=True))
    assert len(list(last.past(WantedLines()))) == 1


async def test_who_follows_gets_what_it_wants_until_it_leaves() -> None:
    last, follower = Observations(), Follower(WantedLines(component="kubelet"))
    last.listen(follower.told)
    taking = asyncio.create_task(follower.take())
    last.add(seen())
    last.add(seen(component="kubelet"))
    lines, dropped = await taking
    assert ([each.component for each in lines], dropped) == (["kubelet"], 0)
    last.forget(follower.told)
    last.add(seen(component="kubelet"))
    assert follower.is_empty


async def test_one_who_reads_too_slowly_loses_the_oldest_lines_and_is_told_how_many() -> None:
    follower = Follower(WantedLines())
    counter = metrics.BOUNDS_REACHED.labels("lines for one who looks")
    before = counter._value.get()
    for at in range(MAX_WAITING + 7):
        follower.told(seen(float(at)))
    lines, dropped = await follower.take()
    assert (lines[0].at, len(lines), dropped) == (7.0, MAX_WAITING, 7)
    assert counter._value.get() - before == 7
