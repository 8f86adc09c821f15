"""Traffic counters: the bytes of each component, and the connections of its clients."""

from __future__ import annotations

import itertools

import pytest
from mitmproxy import connection, http
from mitmproxy import flow as mitmproxy_flow
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow, tutils

from addons import connections
from addons.connections import FIRST_REQUEST, Connections
from addons.requests.caller import Listener
from addons.requests.request_context import begin
from addons.server.accept import accepted
from addons.server.limits.open_connections import OWN_DESCRIPTORS, OpenConnections
from addons.telemetry.component_traffic import ComponentCounts
from addons.telemetry.observation import WantedLines
from addons.traffic import Traffic
from addons.ui.hub_records import Records
from tests.addons.support.guarding import under_guard
from tests.addons.support.proxied import Raw, Straight
from tests.addons.support.samples import SERVICES, lead, request_context

WATCH = f"{SERVICES}?watch=true"


@pytest.fixture
def traffic() -> Traffic:
    return under_guard(Traffic(Records()))


def flow_with_response(
    target: str = SERVICES, *, cloud: bool = False, listener: Listener = Listener.PLAIN, code: int = 200
) -> http.HTTPFlow:
    flow = tflow.tflow(
        req=tutils.treq(path=target.encode()), resp=tutils.tresp(status_code=code, content=b"whole")
    )
    context = request_context(target, listener=listener)
    if cloud:
        lead(context, Straight(lambda: Raw(b"")))
    begin(flow, context)
    return flow


def counts_of(traffic: Traffic, component: str = "kube-proxy") -> ComponentCounts:
    return traffic.counts.components()[component]


def test_the_bytes_of_a_buffered_response_are_counted(traffic: Traffic) -> None:
    flow = flow_with_response(cloud=True)
    traffic.responseheaders(flow)
    traffic.response(flow)
    assert counts_of(traffic).totals.since(type(counts_of(traffic).totals)()) == counts_of(traffic).totals
    assert (
        counts_of(traffic).totals.requests,
        counts_of(traffic).totals.sent,
        counts_of(traffic).totals.fetched,
    ) == (1, 5, 5)
    assert list(counts_of(traffic).reads) == ["services"]


@pytest.mark.parametrize(("cloud", "fetched"), [(True, 3), (False, 0)])
def test_the_bytes_of_a_stream_are_counted_piece_by_piece(
    traffic: Traffic, cloud: bool, fetched: int
) -> None:
    flow = flow_with_response(WATCH, cloud=cloud)
    assert flow.response is not None
    flow.response.stream = True
    traffic.responseheaders(flow)
    assert counts_of(traffic).watches == 1
    assert callable(flow.response.stream)
    assert flow.response.stream(b"abc") == b"abc"
    assert (counts_of(traffic).totals.sent, counts_of(traffic).totals.fetched) == (3, fetched)
    assert counts_of(traffic).totals.copied == 3 - fetched
    traffic.response(flow)
    assert (counts_of(traffic).watches, counts_of(traffic).totals.sent) == (0, 3)


def test_a_streamed_response_remains_streamed(traffic: Traffic) -> None:
    flow = flow_with_response()
    assert flow.response is not None
    flow.response.stream = lambda chunk: chunk.upper()
    traffic.responseheaders(flow)
    assert callable(flow.response.stream)
    assert flow.response.stream(b"abc") == b"ABC"
    assert counts_of(traffic).totals.sent == 3


def test_an_error_response_is_not_counted_as_served_from_copies(traffic: Traffic) -> None:
    traffic.response(flow_with_response(code=503))
    assert (counts_of(traffic).totals.sent, counts_of(traffic).totals.copied) == (5, 0)


def test_each_request_and_the_start_of_each_watch_is_observed(traffic: Traffic) -> None:
    watch = flow_with_response(WATCH)
    assert watch.response is not None
    watch.response.stream = True
    traffic.responseheaders(watch)
    assert callable(watch.response.stream)
    watch.response.stream(b"abc")
    traffic.response(watch)
    traffic.response(flow_with_response(code=404))
    seen = [
        (each.verb, each.status, each.sent, each.seconds is None)
        for each in traffic.observations.past(WantedLines())
    ]
    assert seen == [("watch", 200, 0, True), ("watch", 200, 3, False), ("list", 404, 5, False)]


def test_refusals_and_aborts_are_errors_but_client_disconnects_are_not(traffic: Traffic) -> None:
    traffic.response(flow_with_response(code=404))
    broken = flow_with_response(WATCH)
    broken.response, broken.error = None, mitmproxy_flow.Error("connection refused")
    traffic.error(broken)
    left = flow_with_response(WATCH)
    traffic.responseheaders(left)
    left.error = mitmproxy_flow.Error("client disconnected")
    traffic.error(left)
    assert (
        counts_of(traffic).totals.requests,
        counts_of(traffic).totals.errors,
        counts_of(traffic).watches,
    ) == (3, 2, 0)
    assert traffic._open == {}


def test_a_request_that_was_never_parsed_is_observed(traffic: Traffic) -> None:
    traffic.response(tflow.tflow(resp=tutils.tresp(status_code=400)))
    assert counts_of(traffic, "").totals.errors == 1


MANY = 100_000
_ids = itertools.count()


def client_of() -> connection.Client:
    made = tflow.tclient_conn()
    made.peername, made.sockname = ("10.0.0.1", 40_000), ("10.0.0.9", 10268)
    made.id, made.proxy_mode = f"client {next(_ids)}", ProxyMode.parse("hub:tls@10268")
    return made


def test_a_connection_beyond_the_bound_is_refused() -> None:
    limits = Connections(OpenConnections(OWN_DESCRIPTORS))
    client = client_of()
    limits.client_connected(client)
    assert client.error == "too many connections"


class Open:
    """An accepted connection, and the time since when it waits for its client."""

    def __init__(self, waits: float | None) -> None:
        self._waits = waits

    def waits_since(self, _connected: float) -> float | None:
        return self._waits


@pytest.mark.parametrize(
    ("found", "is_closed"), [(None, True), (Open(0.0), True), (Open(10.0), False), (Open(None), False)]
)
def test_a_silent_client_is_closed(
    monkeypatch: pytest.MonkeyPatch, found: Open | None, is_closed: bool
) -> None:
    closed: list[str] = []
    now = 0.0

    def close(client_id: str, _why: str) -> bool:
        closed.append(client_id)
        return True

    monkeypatch.setattr(connections, "close_client", close)
    limits, client = Connections(OpenConnections(MANY), lambda: now), client_of()
    if found is not None:
        monkeypatch.setitem(accepted, client.id, found)
    limits.client_connected(client)
    assert limits._close_late() == 0
    now = FIRST_REQUEST + 1
    assert limits._close_late() == len(closed) == int(is_closed)


def test_a_silent_open_tunnel_stays_and_an_unopened_one_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now, closed, opened = 0.0, list[str](), client_of()

    def close(client_id: str, _why: str) -> bool:
        closed.append(client_id)
        return True

    monkeypatch.setattr(connections, "close_client", close)
    monkeypatch.setitem(accepted, opened.id, Open(None))
    limits = Connections(OpenConnections(MANY), lambda: now)
    waiting = client_of()
    for each in (opened, waiting):
        limits.client_connected(each)
    now = FIRST_REQUEST + 1
    assert limits._close_late() == 1
    assert closed == [waiting.id]
