"""Reads after an edit of the rules or a restore of the cloud, and those that no view answers, on their way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mitmproxy import http

from addons import router
from addons.requests.request_context import context_of
from addons.requests.route_decision import RouteKind
from addons.rules.table import parse_rules
from tests.addons.support.routed import Routed, route_of
from tests.addons.support.samples import SERVICES, SLICES

RELAY, VIEW = RouteKind.RELAY, RouteKind.VIEW


@pytest.fixture
async def routed() -> AsyncIterator[Routed]:
    made = Routed()
    yield made
    made.inputs.close()


@pytest.mark.parametrize(
    ("target", "component", "route"),
    [
        (f"{SLICES}?watch=true&resourceVersion=100", "other", VIEW),
        (
            f"{SLICES}?watch=true&resourceVersion=100&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            "other",
            VIEW,
        ),
        ("/apis/discovery.k8s.io/v1/watch/endpointslices?resourceVersion=100", "other", VIEW),
        # What the client holds is newer than the edit, or the client is sent the whole state.
        (f"{SLICES}?watch=true&resourceVersion=101", "other", RELAY),
        (f"{SLICES}?watch=true&resourceVersion=0", "other", RELAY),
        (f"{SLICES}?watch=true", "other", RELAY),
        (
            f"{SLICES}?watch=true&resourceVersion=100&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            *("other", RELAY),
        ),
        (f"{SLICES}?resourceVersion=100", "other", RELAY),
        # The cloud refuses the version itself; a view knows its own history.
        (f"{SLICES}?watch=true&resourceVersion=x", "other", RELAY),
        (f"{SLICES}?watch=true&resourceVersion=100", "reader", VIEW),
        # No filter knows the resource, and the cloud may have been restored.
        ("/api/v1/namespaces?watch=true&resourceVersion=100", "other", VIEW),
    ],
)
async def test_a_relayed_watch_does_not_resume_over_an_edit(
    routed: Routed, target: str, component: str, route: RouteKind
) -> None:
    """A view that the edit took away may have given the version, and have hidden objects that the cloud never sends."""
    routed.of_others = 100
    assert route_of(await routed.request(target, component)) is route


async def test_what_no_view_can_write_is_listed_anew_after_an_edit(routed: Routed) -> None:
    routed.of_others = 100
    old = "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io"
    flow = await routed.request(f"{SLICES}?watch=true&resourceVersion=100", "other", accept=old)
    assert flow.response is not None
    assert flow.response.status_code == 410


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[http.HTTPFlow]:
    """The flows whose answers were broken off."""
    found: list[http.HTTPFlow] = []
    monkeypatch.setattr(router, "break_off", lambda flow, _why: found.append(flow))
    return found


async def test_relayed_watches_of_a_former_history_are_ended_when_a_restore_is_found(
    routed: Routed, broken: list[http.HTTPFlow]
) -> None:
    ended = await routed.request(f"{SLICES}?watch=true&resourceVersion=100", "other")
    await routed.request(f"{SLICES}?watch=true&resourceVersion=101", "other")
    routed.of_others = 100
    routed.router.restored("endpointslices.discovery.k8s.io")
    assert broken == [ended]


# -- what no view answers ------------------------------------------------------------------------------------------


async def leaves_to_cloud(routed: Routed, target: str) -> http.HTTPFlow:
    """A request that no view answers, on its way to the cloud."""
    flow = await routed.request(target, "cached")
    context = context_of(flow)
    assert context is not None
    assert context.relay is not None
    context.relay(flow)
    assert context.answerer is None
    assert route_of(flow) is RELAY
    return flow


@pytest.mark.parametrize("target", [f"{SLICES}?watch=true", f"{SLICES}?resourceVersion=0"])
async def test_what_no_view_answers_is_relayed_and_ended_as_what_was_always_to_be(
    routed: Routed, broken: list[http.HTTPFlow], target: str
) -> None:
    """Such a watch once went on under the former rules, for an hour at the longest."""
    flow, refused = await leaves_to_cloud(routed, target), await leaves_to_cloud(routed, target)
    assert routed.relayed == [flow, refused]
    flow.response = http.Response.make(200)
    routed.router.responseheaders(flow)
    assert flow.response.status_code == 200
    routed.known.rules = parse_rules({"filter_servicetopology": "cached/endpointslices#list;watch"})
    routed.router.rules_changed()
    assert broken == [flow, refused]
    refused.response = http.Response.make(200)
    routed.router.responseheaders(refused)
    assert refused.response.status_code == 503


async def test_what_no_view_answers_ends_when_the_cloud_was_restored(
    routed: Routed, broken: list[http.HTTPFlow]
) -> None:
    ended = await leaves_to_cloud(routed, f"{SLICES}?watch=true")
    await leaves_to_cloud(routed, f"{SERVICES}?watch=true")
    routed.router.restored("endpointslices.discovery.k8s.io")
    assert broken == [ended]
