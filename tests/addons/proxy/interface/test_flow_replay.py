"""A flow that a person replays passes the hub's layers, as a request to the listener that it once came to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from mitmproxy import http
from mitmproxy.addons.clientplayback import ClientPlayback
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow, tutils

from addons.proxy.interface.flow_replay import FlowReplays, replay_through_the_hub
from addons.proxy.listener_mode import HubMode, listener_of
from addons.proxy.listeners import open_listeners
from addons.requests.caller import Listener
from addons.requests.hidden_credentials import hide
from addons.requests.request_context import begin
from tests.addons.support.proxied import ANSWER, Raw, Straight
from tests.addons.support.samples import request_context

ANY = "hub:plain@127.0.0.1:0"


class Seen:
    """Notes what comes to the addons."""

    def __init__(self, upstream: Straight) -> None:
        self._upstream = upstream
        self.listeners: list[Listener | None] = []
        self.done = asyncio.Event()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        self.listeners.append(listener_of(flow.client_conn))
        context = request_context(flow.request.path)
        context.upstream = self._upstream
        begin(flow, context)

    def response(self, flow: http.HTTPFlow) -> None:
        self.done.set()


@pytest.fixture
async def server() -> AsyncIterator[Raw]:
    made = Raw(ANSWER)
    async with made.serve():
        yield made


def saved(path: bytes) -> http.HTTPFlow:
    """A flow whose request had a token, as an interface has it again from its state."""
    request = tutils.treq(
        path=path, headers=http.Headers([(b"Authorization", b"Bearer secret")]), content=b""
    )
    hide(request)
    flow = tflow.tflow(req=request)
    flow.live = False
    flow.client_conn.proxy_mode = HubMode.parse(ANY)
    flow.client_conn.set_state(flow.client_conn.get_state())
    return flow


@pytest.mark.parametrize("at_once", [1, -1])
async def test_a_replay_carries_what_the_flow_does_not_show(server: Raw, at_once: int) -> None:
    upstream = Straight(lambda: server)
    own, seen = ClientPlayback(), Seen(upstream)
    with taddons.context(servers := Proxyserver(), own, seen) as context:
        await open_listeners([ANY])
        context.configure(own, client_replay_concurrency=at_once)
        own.start_replay([saved(b"/before")])
        replay_through_the_hub(context.master)
        replays = context.master.addons.get("clientplayback")
        assert isinstance(replays, FlowReplays)
        replays.running()  # type: ignore[no-untyped-call]  # as mitmproxy has it
        async with asyncio.timeout(20):
            await seen.done.wait()
        await replays.done()  # type: ignore[no-untyped-call]  # as above
        await servers.servers.update([])
        upstream.pool.close()
    assert seen.listeners == [Listener.PLAIN]
    assert b"\r\nauthorization: Bearer secret\r\n" in server.got[0]


def test_without_mitmproxys_addon_there_are_no_replays() -> None:
    with taddons.context() as context:
        replay_through_the_hub(context.master)
        assert context.master.addons.get("clientplayback") is None
