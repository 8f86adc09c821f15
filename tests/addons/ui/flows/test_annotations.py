"""Annotations of flows, and the hub's data about a flow."""

from __future__ import annotations

import datetime

import pytest
from mitmproxy import flowfilter, http
from mitmproxy.addons.view import View
from mitmproxy.test import taddons, tflow

from addons.link.drills import Drill, DrillKind
from addons.requests.route_decision import Route, RouteKind
from addons.ui.flows.annotations import (
    ALARM,
    DEFAULT_FILTER,
    OWN,
    REFUSED,
    ROUTES,
    comment_of,
    mark_of,
    why_refused,
)
from addons.ui.flows.flow_records import FlowRecord, record_of, remember
from addons.ui.masking import DEFAULT_VISIBILITY, Visible
from kube.errors import forbidden
from tests.addons.support.filtered_view import filtered
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import request_context


@pytest.mark.parametrize("kind", RouteKind)
def test_each_route_has_a_mark_and_a_name(kind: RouteKind) -> None:
    made = request_context(component="kubelet")
    made.route = Route(kind, "because")
    assert mark_of(made, refused=False) == ROUTES[kind][0]
    assert comment_of(made) == f"kubelet ▸ {ROUTES[kind][1]} ▸ because"


def test_the_comment_of_a_refusal_has_the_reason() -> None:
    answer = http.Response.make(403, forbidden("not for your user").to_json())
    made = request_context(component="kubelet")
    assert mark_of(made, refused=True) == REFUSED
    assert comment_of(made, answer) == "kubelet ▸ refused ▸ 403 not for your user"
    assert comment_of(None, answer) == "(unnamed component) ▸ refused ▸ 403 not for your user"
    assert why_refused(http.Response.make(502, b"<html>")) == "502 Bad Gateway"


def test_a_request_that_was_never_parsed_has_a_comment() -> None:
    assert comment_of(None) == "(unnamed component)"
    assert mark_of(None, refused=False) == REFUSED


@pytest.mark.parametrize(
    ("mark", "path", "shown"),
    [
        (ROUTES[RouteKind.VIEW][0], "/api/v1/services", True),
        (OWN, "/api/v1/services", False),
        (ROUTES[RouteKind.RELAY][0], "/livez", False),
        (ROUTES[RouteKind.RELAY][0], "/readyz?verbose", False),
    ],
)
def test_the_default_filter_hides_probes_and_requests_of_the_hub(
    mark: str, path: str, *, shown: bool
) -> None:
    flow = tflow.tflow()
    flow.marked, flow.request.path = mark, path
    assert bool(flowfilter.parse(DEFAULT_FILTER)(flow)) is shown


def test_the_marks_are_valid_in_mitmproxy() -> None:
    flow = tflow.tflow()
    with taddons.context(View()) as context:
        for mark in (*(mark for mark, _ in ROUTES.values()), OWN, REFUSED):
            context.master.commands.call("flow.mark", [flow], mark)
            assert flow.marked == mark


def test_the_comment_begins_with_the_drill() -> None:
    drill = Drill(DrillKind.SLOW, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), 64, 300)
    assert comment_of(None, None, drill) == f"{ALARM} DRILL slow ▸ (unnamed component)"


async def test_a_request_without_a_view_has_no_source(parts: HubWorld) -> None:
    found = filtered(parts, parts.context("/version"))
    assert (found.filters, found.source(), list(found.items())) == ((), None, [])
    never_read = filtered(parts, parts.context("/api/v1/services?resourceVersion=0", "kube-proxy"))
    assert never_read.source() is None


def test_a_flow_has_its_record_and_a_copy_has_none() -> None:
    flow = tflow.tflow()
    made = FlowRecord(None, Visible(secrets=True))
    remember(flow, made)
    assert record_of(flow) is made
    for unknown in (flow.copy(), None):
        assert record_of(unknown) == FlowRecord(None, DEFAULT_VISIBILITY)
