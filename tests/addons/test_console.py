"""Content views as mitmproxy asks them, and marks that are there beside an interface only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mitmproxy import contentviews, http
from mitmproxy.addons.view import View
from mitmproxy.proxy.layers.http._hooks import HttpRequestHeadersHook, HttpResponseHeadersHook
from mitmproxy.test import taddons, tflow

from addons.console import MARKS, OWN, REFUSED, STREAMED, Console, mark_of
from addons.requests.caller import Listener
from addons.requests.request_context import context_of
from addons.requests.route_decision import Route, RouteKind
from tests.addons.support.routed import Routed, flow_of
from tests.addons.support.samples import SERVICES, request_context

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
def context() -> Iterator[taddons.context]:
    """A mitmproxy without an interface, with the addon."""
    with taddons.context(Console()) as made:
        yield made
        made.master.addons.clear()


@pytest.fixture
def ui() -> Iterator[taddons.context]:
    """A mitmproxy with the list of flows that both interfaces have."""
    with taddons.context(View(), Console()) as made:
        made.options.add_option("store_streamed_bodies", bool, False, "")
        made.options.update(store_streamed_bodies=False)
        yield made
        made.master.addons.clear()


def test_the_views_come_and_go_with_the_addon() -> None:
    ours = {"kubernetes", "kubernetes watch"}
    with taddons.context(Console()) as context:
        assert ours <= set(contentviews.registry)
        context.master.addons.clear()
    assert ours.isdisjoint(contentviews.registry)


def test_without_an_interface_no_hook_is_added(context: taddons.context) -> None:
    assert context.master.addons.get("edgehub-marks") is None


def test_the_marks_go_with_the_addon(ui: taddons.context) -> None:
    assert ui.master.addons.get("edgehub-marks") is not None
    ui.master.addons.remove(ui.master.addons.get("edgehub-console"))
    assert ui.master.addons.get("edgehub-marks") is None


async def marked(ui: taddons.context, flow: http.HTTPFlow) -> http.HTTPFlow:
    marks = ui.master.addons.get("edgehub-marks")
    await ui.master.addons.invoke_addon(marks, HttpRequestHeadersHook(flow))
    return flow


async def answered(ui: taddons.context, flow: http.HTTPFlow, *, stream: bool) -> http.HTTPFlow:
    flow.response = http.Response.make(200, b"")
    flow.response.stream = stream
    await ui.master.addons.invoke_addon(ui.master.addons.get("edgehub-marks"), HttpResponseHeadersHook(flow))
    return flow


async def test_a_flow_says_its_route_and_its_filters(ui: taddons.context) -> None:
    flow = await marked(ui, await Routed().request(f"{SERVICES}?resourceVersion=0"))
    made = context_of(flow)
    assert made is not None
    assert made.route is not None
    assert flow.marked == MARKS[RouteKind.VIEW]
    assert flow.comment == f"reader: view, {made.route.reason}; filters discardcloudservice"


async def test_a_flow_says_why_its_body_is_not_there(ui: taddons.context) -> None:
    flow = await marked(ui, await Routed().request("/api/v1/pods", "other"))
    said = flow.comment
    assert (await answered(ui, flow, stream=False)).comment == said
    assert (await answered(ui, flow, stream=True)).comment == f"{said}; {STREAMED}"


async def test_a_body_that_is_kept_needs_no_excuse(ui: taddons.context) -> None:
    ui.options.update(store_streamed_bodies=True)
    flow = await answered(ui, flow_of(SERVICES), stream=True)
    assert flow.comment == ""


async def test_what_was_refused_is_marked(ui: taddons.context) -> None:
    assert (await marked(ui, tflow.tflow(resp=True))).marked == REFUSED
    routed = await Routed().request("/api/v1/pods", "other")
    routed.response = http.Response.make(503)
    assert (await marked(ui, routed)).marked == REFUSED


@pytest.mark.parametrize("kind", RouteKind)
def test_every_route_has_a_mark(kind: RouteKind) -> None:
    made = request_context()
    made.route = Route(kind, "because")
    assert mark_of(made, refused=False) == MARKS[kind]
    made.listener = Listener.INTERNAL
    assert mark_of(made, refused=False) == OWN


def test_the_marks_are_mitmproxys() -> None:
    flow = tflow.tflow()
    with taddons.context(View()) as context:
        for mark in (*MARKS.values(), OWN, REFUSED):
            context.master.commands.call("flow.mark", [flow], mark)
            assert flow.marked == mark
