"""Observations of requests and events: their text lines, queries, and bounds."""

from __future__ import annotations

import asyncio
import datetime
import gc
import json
from typing import Any

import pytest

from addons.telemetry import metrics
from addons.telemetry.observation import (
    MAX_HISTORY_BYTES,
    MAX_LINES,
    MAX_WAITING,
    PACK_BATCH,
    Follower,
    Observation,
    Observations,
    Tally,
    WantedLines,
    from_json,
    line,
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
def test_a_query_selects_lines_by_component_resource_and_name(
    wanted: WantedLines, change: dict[str, Any], has: bool
) -> None:
    assert wanted.has(seen(**change)) is has


def test_past_requests_and_events_are_returned_in_order() -> None:
    last = Observations()
    for at in (1.0, 2.0, 3.0):
        last.add(seen(at, is_event=at == 2.0))
    assert [each.at for each in last.past(WantedLines(events=True))] == [1.0, 2.0, 3.0]
    assert [each.at for each in last.past(WantedLines())] == [1.0, 3.0]


@pytest.mark.parametrize("name", ["web", "x" * 2000])
def test_observations_are_bounded_in_lines_and_bytes(name: str) -> None:
    last = Observations()
    for at in range(MAX_LINES + 10):
        last.add(seen(float(at), name=name))
    left = list(last.past(WantedLines()))
    assert left[-1].at == MAX_LINES + 9
    assert len(left) <= MAX_LINES
    assert sum(each.size for each in left) <= MAX_HISTORY_BYTES


def test_observations_are_stored_in_few_python_objects() -> None:
    """Each full garbage collection scans all of them."""
    before = sum(isinstance(each, Observation) for each in gc.get_objects())
    last = Observations()
    for at in range(10 * PACK_BATCH):
        last.add(seen(float(at)))
    assert sum(isinstance(each, Observation) for each in gc.get_objects()) - before < PACK_BATCH
    assert [each.at for each in last.past(WantedLines())] == [*map(float, range(10 * PACK_BATCH))]


def test_many_events_evict_no_request() -> None:
    last = Observations()
    last.add(seen())
    for at in range(MAX_LINES + 1):
        last.add(seen(float(at), is_event=True))
    assert len(list(last.past(WantedLines()))) == 1


async def test_a_follower_gets_its_selected_lines_until_it_disconnects() -> None:
    last, follower = Observations(), Follower(WantedLines(component="kubelet"))
    last.listen(follower.summary)
    taking = asyncio.create_task(follower.next_lines())
    last.add(seen())
    last.add(seen(component="kubelet"))
    lines, dropped = await taking
    assert ([each.component for each in lines], dropped) == (["kubelet"], 0)
    last.forget(follower.summary)
    last.add(seen(component="kubelet"))
    assert follower.is_empty


async def test_a_slow_follower_loses_the_oldest_lines_and_gets_their_number() -> None:
    follower = Follower(WantedLines())
    counter = metrics.BOUNDS_REACHED.labels("lines for one who looks")
    before = counter._value.get()
    for at in range(MAX_WAITING + 7):
        follower.summary(seen(float(at)))
    lines, dropped = await follower.next_lines()
    assert (lines[0].at, len(lines), dropped) == (7.0, MAX_WAITING, 7)
    assert counter._value.get() - before == 7


AT = datetime.datetime(2026, 11, 23, 3, 29, 1, 123456).timestamp()
LISTED = Observation(
    *(AT, "kube-proxy", "list", "services", "", "default", "", "viewed", 200, 543, 0.0051),
    *("cloud", "view", "cached component", 42, ()),
)
HIDES = Tally("discardcloudservice", 5, 0, 2, ("load-balancer",))
KEEPS = Tally("nodeportisolation", 5, 0, 0, ())


@pytest.mark.parametrize(
    ("change", "line_shown"),
    [
        ({}, "kube-proxy list services default viewed 200 543 B 5 ms cloud"),
        ({"name": "web"}, "kube-proxy list services default/web viewed 200 543 B 5 ms cloud"),
        ({"component": ""}, "(unnamed) list services default viewed 200 543 B 5 ms cloud"),
        (
            {"verb": "patch", "resource": "nodes", "subresource": "status", "namespace": "", "name": "n1"},
            "kube-proxy patch nodes/status n1 viewed 200 543 B 5 ms cloud",
        ),
        ({"verb": "watch", "seconds": None}, "kube-proxy watch services default viewed 200 543 B open cloud"),
        ({"seconds": 492.4}, "kube-proxy list services default viewed 200 543 B 492 s cloud"),
        ({"sent": 54_000}, "kube-proxy list services default viewed 200 52 KiB 5 ms cloud"),
        (
            {"verdict": "refused", "status": 406, "source": "hub", "reason": "filtered objects come as JSON"},
            "kube-proxy list services default refused 406 543 B 5 ms hub filtered objects come as JSON",
        ),
        (
            {"verdict": "filtered", "filters": (HIDES, KEEPS)},
            "kube-proxy list services default filtered 200 543 B 5 ms cloud"
            " discardcloudservice: 5 kept, 2 hidden (load-balancer)",
        ),
        (
            {"verb": "HIDDEN", "name": "lb", "verdict": "filtered", "status": 0, "sent": 0, "seconds": None}
            | {"is_event": True, "watchers": 1, "filters": (Tally("f", 0, 0, 1, ("a", "b", "c", "d")),)},
            "kube-proxy HIDDEN services default/lb filtered - 0 B - cloud f: 1 hidden (a, b, c, …)",
        ),
    ],
)
def test_an_observation_is_printed_in_columns(change: dict[str, object], line_shown: str) -> None:
    def columns(seen: Observation, **how: bool) -> list[str]:
        return line(seen, **how).split()

    time, *rest = columns(LISTED._replace(**change))  # type: ignore[arg-type]  # a table of fields
    assert (time, " ".join(rest)) == ("03:29:01.123", line_shown)


def test_the_wide_format_adds_date_reason_version_and_filters_that_changed_nothing() -> None:
    line_shown = line(LISTED._replace(filters=(KEEPS,)), wide=True)
    assert line_shown.startswith("2026-11-23T03:29:01.123")
    assert "view: cached component  v42  nodeportisolation: 5 kept" in line_shown


def test_the_wide_format_omits_an_unknown_version() -> None:
    assert line(LISTED._replace(version=0), wide=True).endswith("view: cached component")


@pytest.mark.parametrize(
    ("verdict", "status", "colour"),
    [("refused", 403, "31"), ("offline", 200, "33"), ("relayed", 503, "31"), ("viewed", 200, "")],
)
def test_errors_and_changes_are_coloured(verdict: str, status: int, colour: str) -> None:
    seen = LISTED._replace(verdict=verdict, status=status)
    assert (f"\x1b[{colour}m" in line(seen, has_colours=True)) is bool(colour)
    assert "\x1b" not in line(seen)


def test_text_chosen_by_clients_is_escaped_for_the_terminal() -> None:
    odd = "\x1b[2Jweb\nfake\x9b1m"
    texts: dict[str, Any] = {
        name: odd for name, kind in Observation.__annotations__.items() if kind in ("str", str)
    }
    seen = LISTED._replace(**{**texts, "verdict": "refused"})
    for line_shown in (line(seen), line(seen, wide=True)):
        assert line_shown.isprintable()


def test_an_observation_survives_encoding_to_json_and_back() -> None:
    seen = LISTED._replace(filters=(HIDES,))
    assert from_json(json.loads(json.dumps(seen.to_json()))) == seen
