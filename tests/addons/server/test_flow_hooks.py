"""Flows and hooks made past mitmproxy's constructors are as those make them."""

from __future__ import annotations

from uuid import UUID

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons.proxy.fail_closed import FLOW_HOOKS
from addons.server.flow_hooks import HOOKS, NO_SERVER, flow_of
from addons.server.flow_replay import ReplayedRequest


async def test_a_flow_has_what_mitmproxys_constructor_gives_it() -> None:
    request = ReplayedRequest(tflow.tflow())
    made, another = flow_of(request), flow_of(request)
    theirs = http.HTTPFlow(request.client, NO_SERVER, live=True)
    theirs.request = request.head
    own = {"id": made.id, "timestamp_created": made.timestamp_created}
    assert vars(made) == vars(theirs) | own
    assert str(UUID(made.id)) == made.id != another.id
    assert made.timestamp_created <= theirs.timestamp_created
    assert made.metadata is not another.metadata


@pytest.mark.parametrize("name", FLOW_HOOKS)
def test_a_hook_has_nothing_but_its_flow(name: str) -> None:
    flow = tflow.tflow()
    assert vars(HOOKS[name](flow)) == {"flow": flow}
