"""The flows that an interface keeps are bounded in number and in bytes, and an open one is never removed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from mitmproxy import http
from mitmproxy.test import tflow
from mitmproxy.websocket import WebSocketData, WebSocketMessage

from addons.telemetry import metrics
from addons.ui.flows import kept_flows
from addons.ui.flows.kept_flows import KeptFlows, size_of
from tests.addons.support.observed import value_of


class Removed:
    """What an interface was asked to remove."""

    def __init__(self) -> None:
        self.flows: list[http.HTTPFlow] = []
        self.kept = KeptFlows(self._remove)

    def _remove(self, flows: Sequence[http.HTTPFlow]) -> None:
        self.flows += flows


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> Removed:
    monkeypatch.setattr(kept_flows, "MAX_FLOWS", 3)
    monkeypatch.setattr(kept_flows, "MAX_OWN", 2)
    monkeypatch.setattr(kept_flows, "MAX_KEPT_FLOWS", 1_000)
    return Removed()


def flow(size: int = 0, *, live: bool = False) -> http.HTTPFlow:
    made = tflow.tflow(resp=http.Response.make(200, b"x" * size))
    made.request.content = b""
    made.live = live
    return made


def test_the_oldest_go(removed: Removed) -> None:
    before = value_of(metrics.FLOWS_REMOVED)
    flows = [flow() for _ in range(5)]
    for each in flows:
        removed.kept.add(each, is_own=False)
    assert removed.flows == flows[:2]
    assert value_of(metrics.FLOWS_REMOVED) == before + 2


def test_the_hubs_own_never_push_out_components(removed: Removed) -> None:
    component, own = flow(), [flow() for _ in range(10)]
    removed.kept.add(component, is_own=False)
    for each in own:
        removed.kept.add(each, is_own=True)
    assert removed.flows == own[:8]


def test_bytes_are_bounded_and_the_newest_stays(removed: Removed) -> None:
    flows = [flow(600), flow(600), flow(5_000)]
    for each in flows:
        removed.kept.add(each, is_own=False)
    assert removed.flows == flows[:2]


def test_a_replay_is_not_ended_and_what_a_person_removed_is_forgotten(removed: Removed) -> None:
    again, gone, others = flow(), flow(), [flow() for _ in range(4)]
    removed.kept.add(again, is_own=False)
    again.live = True
    removed.kept.add(gone, is_own=False)
    removed.kept.forget(gone)
    for each in others:
        removed.kept.add(each, is_own=False)
    assert removed.flows == [others[0]]
    removed.kept.clear()
    removed.kept.add(flow(), is_own=False)
    assert len(removed.flows) == 1


def test_a_flow_is_as_large_as_its_bodies_and_its_events() -> None:
    made = flow(10)
    made.websocket = WebSocketData([WebSocketMessage(1, False, b"12345")])
    assert size_of(made) == 15
    made.response = None
    assert size_of(made) == 5
