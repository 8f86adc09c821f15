"""A flow that a person replays passes the hub's layers, as a request to the listener that it once came to.

A HAR file has the comment of each flow, and mitmproxy leaves the hub's own script alone when that changes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.addons.clientplayback import ClientPlayback
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.savehar import SaveHar
from mitmproxy.addons.script import ScriptLoader
from mitmproxy.test import taddons, tflow, tutils

from addons.proxy.interface.replaced_addons import HUB, FlowReplays, change_addons
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
        change_addons(context.master)
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


def comment_in_har(file: Path, *, is_hub: bool) -> str:
    flow = tflow.tflow(resp=True)
    flow.comment = "kubelet ▸ relay"
    with taddons.context(SaveHar()) as context:
        if is_hub:
            change_addons(context.master)
        context.master.commands.call("save.har", [flow], str(file))
    return str(json.loads(file.read_text())["log"]["entries"][0].get("comment", ""))


def test_it_is_there_where_mitmproxys_own_leaves_it_out(tmp_path: Path) -> None:
    assert comment_in_har(tmp_path / "own.har", is_hub=False) == "", "mitmproxy has it now: the hub's can go"
    assert comment_in_har(tmp_path / "hub.har", is_hub=True) == "kubelet ▸ relay"


async def test_only_the_hubs_own_script_is_no_longer_watched(tmp_path: Path) -> None:
    (other := tmp_path / "other.py").write_text("")
    (link := tmp_path / "hub.py").symlink_to(HUB)
    with taddons.context(loader := ScriptLoader(), loadcore=False) as context:
        context.options.update(scripts=[str(other), str(link)])
        watchers = [script.reloadtask for script in loader.addons]
        change_addons(context.master)
        await asyncio.sleep(0)
        assert [each is not None and each.done() for each in watchers] == [False, True]
        context.options.update(scripts=[])
    await asyncio.gather(*(each for each in watchers if each is not None), return_exceptions=True)


def test_a_master_without_these_addons_stays_so() -> None:
    with taddons.context(loadcore=False) as context:
        change_addons(context.master)
        assert context.master.addons.get("clientplayback") is None
        assert context.master.addons.get("savehar") is None
    assert HUB.is_file()
