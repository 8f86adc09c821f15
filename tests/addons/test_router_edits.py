"""Watches that come back after an edit of the rules, and go to the cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from mitmproxy import http

from addons.requests.caller import Listener
from tests.addons.support.routed import Routed
from tests.addons.support.samples import SLICES


@pytest.fixture
async def routed() -> AsyncIterator[Routed]:
    made = Routed()
    yield made
    made.inputs.close()


def code_of(flow: http.HTTPFlow) -> int:
    """0 for a request that goes on."""
    return flow.response.status_code if flow.response is not None else 0


@pytest.mark.parametrize(
    ("target", "component", "code"),
    [
        (f"{SLICES}?watch=true&resourceVersion=100", "other", 410),
        (f"{SLICES}?watch=true&resourceVersion=100&sendInitialEvents=false", "other", 410),
        ("/apis/discovery.k8s.io/v1/watch/endpointslices?resourceVersion=100", "other", 410),
        # What the client holds is newer than the edit, or the client is sent the whole state.
        (f"{SLICES}?watch=true&resourceVersion=101", "other", 0),
        (f"{SLICES}?watch=true&resourceVersion=0", "other", 0),
        (f"{SLICES}?watch=true", "other", 0),
        (
            f"{SLICES}?watch=true&resourceVersion=100&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            *("other", 0),
        ),
        (f"{SLICES}?resourceVersion=100", "other", 0),
        # The cloud refuses the version itself; a view knows its own history; no filter knows the resource.
        (f"{SLICES}?watch=true&resourceVersion=x", "other", 0),
        (f"{SLICES}?watch=true&resourceVersion=100", "reader", 0),
        ("/api/v1/namespaces?watch=true&resourceVersion=100", "other", 0),
    ],
)
async def test_a_relayed_watch_does_not_resume_over_an_edit(
    routed: Routed, target: str, component: str, code: int
) -> None:
    """A view that the edit took away may have given the version, and have hidden objects that the cloud never sends."""
    routed.edited_at = 100
    assert code_of(await routed.request(target, component)) == code


async def test_the_hubs_own_watch_resumes_over_an_edit(routed: Routed) -> None:
    routed.edited_at = 100
    target = f"{SLICES}?watch=true&resourceVersion=100"
    assert code_of(await routed.request(target, "other", listener=Listener.INTERNAL)) == 0
