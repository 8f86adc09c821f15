"""Watches that come back after an edit of the rules, or a restore of the cloud, and go to the cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mitmproxy import http

from addons import router
from addons.requests.route_decision import RouteKind
from tests.addons.support.routed import Routed, route_of
from tests.addons.support.samples import SLICES

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


async def test_relayed_watches_of_a_former_history_are_ended_when_a_restore_is_found(
    routed: Routed, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[http.HTTPFlow] = []
    monkeypatch.setattr(router, "break_off", lambda flow, _why: broken.append(flow))
    ended = await routed.request(f"{SLICES}?watch=true&resourceVersion=100", "other")
    await routed.request(f"{SLICES}?watch=true&resourceVersion=101", "other")
    routed.of_others = 100
    routed.router.restored("endpointslices.discovery.k8s.io")
    assert broken == [ended]
