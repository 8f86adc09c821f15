"""One line about one request or event: what stands in it, and that nothing of a client's moves a terminal."""

from __future__ import annotations

import datetime
import json

import pytest

from addons.telemetry.observation import Observation, Tally, from_json, line

AT = datetime.datetime(2026, 11, 23, 3, 29, 1, 123456).timestamp()
SEEN = Observation(
    *(AT, "kube-proxy", "list", "services", "", "default", "", "viewed", 200, 543, 0.0051),
    *("cloud", "view", "cached component", 42, ()),
)
HIDES = Tally("discardcloudservice", 5, 0, 2, ("load-balancer",))
KEEPS = Tally("nodeportisolation", 5, 0, 0, ())


def words(seen: Observation, **how: bool) -> list[str]:
    return line(seen, **how).split()


@pytest.mark.parametrize(
    ("change", "told"),
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
def test_what_a_line_says(change: dict[str, object], told: str) -> None:
    time, *rest = words(SEEN._replace(**change))  # type: ignore[arg-type]  # a table of fields
    assert (time, " ".join(rest)) == ("03:29:01.123", told)


def test_wide_adds_the_date_the_reason_the_version_and_filters_that_kept_all() -> None:
    told = line(SEEN._replace(filters=(KEEPS,)), wide=True)
    assert told.startswith("2026-11-23T03:29:01.123")
    assert "view: cached component  v42  nodeportisolation: 5 kept" in told


def test_wide_says_no_version_where_the_hub_has_not_looked() -> None:
    assert line(SEEN._replace(version=0), wide=True).endswith("view: cached component")


@pytest.mark.parametrize(
    ("verdict", "status", "colour"),
    [("refused", 403, "31"), ("offline", 200, "33"), ("relayed", 503, "31"), ("viewed", 200, "")],
)
def test_colours_are_for_what_a_person_looks_for(verdict: str, status: int, colour: str) -> None:
    seen = SEEN._replace(verdict=verdict, status=status)
    assert (f"\x1b[{colour}m" in line(seen, has_colours=True)) is bool(colour)
    assert "\x1b" not in line(seen)


def test_nothing_that_a_client_chose_moves_a_terminal() -> None:
    seen = SEEN._replace(name="\x1b[2Jweb\nfake", verdict="refused", reason="no\rway")
    for told in (line(seen), line(seen, wide=True)):
        assert told.isprintable()


def test_json_and_back() -> None:
    seen = SEEN._replace(filters=(HIDES,))
    assert from_json(json.loads(json.dumps(seen.to_json()))) == seen
