"""The initial state of an interface, and its limit of flows."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

import pytest
from mitmproxy import http
from mitmproxy.test import taddons, tflow
from mitmproxy.tools.web.webaddons import WebAddon, WebAuth
from mitmproxy.websocket import WebSocketData, WebSocketMessage

from addons.telemetry import metrics
from addons.ui.flows import interface
from addons.ui.flows.annotations import DEFAULT_FILTER
from addons.ui.flows.interface import RetainedFlows, size_of, web_address
from tests.addons.support.observed import value_of


class Removed:
    """The flows that an interface was told to remove."""

    def __init__(self) -> None:
        self.flows: list[http.HTTPFlow] = []
        self.retained = RetainedFlows(self._remove)

    def _remove(self, flows: Sequence[http.HTTPFlow]) -> None:
        self.flows += flows


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> Removed:
    monkeypatch.setattr(interface, "MAX_FLOWS", 3)
    monkeypatch.setattr(interface, "MAX_OWN", 2)
    monkeypatch.setattr(interface, "MAX_RETAINED_FLOWS", 1_000)
    return Removed()


def flow(size: int = 0, *, live: bool = False) -> http.HTTPFlow:
    made = tflow.tflow(resp=http.Response.make(200, b"x" * size))
    made.request.content = b""
    made.live = live
    return made


def test_the_oldest_flows_are_evicted(removed: Removed) -> None:
    before = value_of(metrics.FLOWS_REMOVED)
    flows = [flow() for _ in range(5)]
    for each in flows:
        removed.retained.add(each, is_own=False)
    assert removed.flows == flows[:2]
    assert value_of(metrics.FLOWS_REMOVED) == before + 2


def test_the_hubs_own_flows_never_evict_those_of_components(removed: Removed) -> None:
    component, own = flow(), [flow() for _ in range(10)]
    removed.retained.add(component, is_own=False)
    for each in own:
        removed.retained.add(each, is_own=True)
    assert removed.flows == own[:8]


def test_the_bytes_of_flows_are_bounded_and_the_newest_stays(removed: Removed) -> None:
    flows = [flow(600), flow(600), flow(5_000)]
    for each in flows:
        removed.retained.add(each, is_own=False)
    assert removed.flows == flows[:2]


def test_a_replayed_flow_is_not_evicted_and_a_removed_one_is_not_counted(removed: Removed) -> None:
    again, gone, others = flow(), flow(), [flow() for _ in range(4)]
    removed.retained.add(again, is_own=False)
    again.live = True
    removed.retained.add(gone, is_own=False)
    removed.retained.forget(gone)
    for each in others:
        removed.retained.add(each, is_own=False)
    assert removed.flows == [others[0]]
    removed.retained.clear()
    removed.retained.add(flow(), is_own=False)
    assert len(removed.flows) == 1


def test_the_size_of_a_flow_includes_its_bodies_and_events() -> None:
    made = flow(10)
    made.websocket = WebSocketData([WebSocketMessage(1, False, b"12345")])
    assert size_of(made) == 15
    made.response = None
    assert size_of(made) == 5


def test_the_address_of_the_page_has_the_token_and_the_filter() -> None:
    with taddons.context(WebAddon(), WebAuth()) as context:
        found = urlsplit(web_address(context.master))
        assert (found.hostname, found.port) == ("127.0.0.1", 8081)
        (token,) = parse_qs(found.query)["token"]
        assert len(token) >= 32
        assert parse_qs(found.fragment.partition("?")[2])["s"] == [DEFAULT_FILTER]


def test_the_address_of_the_page_has_no_password() -> None:
    with taddons.context(WebAddon(), WebAuth()) as context:
        context.options.update(web_password="my own")
        assert "my" not in web_address(context.master)


def test_there_is_no_address_without_a_web_interface() -> None:
    with taddons.context() as context:
        assert web_address(context.master) == ""
