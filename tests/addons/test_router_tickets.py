"""What the origin gets of a request, and holds for it until the request has ended, however it ends."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mitmproxy import flow as mitmproxy_flow
from mitmproxy import http

from addons.requests.caller import Listener
from tests.addons.support.routed import NoAnswerer, Routed
from tests.addons.support.samples import SERVICES, SLICES

WATCH = f"{SLICES}?watch=true"


@pytest.fixture
async def routed() -> AsyncIterator[Routed]:
    made = Routed()
    made.router.serve_peers(NoAnswerer(), dict)
    yield made
    made.inputs.close()


async def test_a_ticket_is_given_back_when_its_flow_fails(routed: Routed) -> None:
    flow = await routed.request(WATCH)
    assert routed.door.tickets
    flow.error = mitmproxy_flow.Error("Client disconnected.")
    routed.router.error(flow)
    assert not routed.door.tickets


async def test_a_ticket_goes_with_a_flow_that_no_hook_is_called_for(routed: Routed) -> None:
    """As when the client left while the addons thought: mitmproxy forgets the flow."""
    flow = await routed.request(WATCH)
    assert routed.door.tickets
    del flow
    gc.collect()  # mitmproxy's own checks of types, which the hub leaves out, make cycles
    assert not routed.door.tickets


async def test_what_the_origins_server_refuses_by_itself_is_a_status(routed: Routed) -> None:
    flow = await routed.request(WATCH)
    flow.response = http.Response.make(400, b"Bad Request", {"Content-Type": "text/plain"})
    flow.server_conn.timestamp_start = 1.0
    routed.router.responseheaders(flow)
    assert flow.response.headers["Content-Type"] == "application/json"
    assert not routed.door.tickets


@pytest.mark.parametrize(
    ("target", "how", "sent"),
    [
        (WATCH, {}, b""),
        (SERVICES, {"listener": Listener.PEER, "method": "POST"}, b""),
        ("/api/v1/nodes", {"listener": Listener.PEER, "method": "PATCH"}, b""),
        ("/api/v1/nodes", {"method": "POST"}, b"{}"),
    ],
    ids=["a view", "a write to a peer", "a patch to a peer", "a relayed write"],
)
async def test_no_body_goes_to_a_view(routed: Routed, target: str, how: dict[str, Any], sent: bytes) -> None:
    flow = await routed.request(target, **how)
    flow.request.data.content = b"{}"
    routed.router.request(flow)
    assert flow.request.data.content == sent
