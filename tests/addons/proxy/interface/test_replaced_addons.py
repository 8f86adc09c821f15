"""Replacements of mitmproxy's addons in an interface: replay, saved flows, flow list, style sheet."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mitmproxy import http
from mitmproxy.addons.clientplayback import ClientPlayback
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.addons.savehar import SaveHar
from mitmproxy.addons.script import ScriptLoader
from mitmproxy.options import Options
from mitmproxy.test import taddons, tflow, tutils
from mitmproxy.tools.console import window
from mitmproxy.tools.console.master import ConsoleMaster
from mitmproxy.tools.web.master import WebMaster
from tornado.httpserver import HTTPServer

from addons.proxy.interface.console_list import WIDTH, list_components
from addons.proxy.interface.replaced_addons import HUB, FlowReplays, change_addons
from addons.proxy.interface.web_style import STATIC, STYLE, show_full_comments
from addons.proxy.listener_mode import HubMode, listener_of
from addons.proxy.listeners import open_listeners
from addons.requests.caller import Listener
from addons.requests.hidden_credentials import hide
from addons.requests.request_context import begin
from addons.ui.flows.annotations import component_of
from tests.addons.support.proxied import ANSWER, Raw, Straight
from tests.addons.support.samples import lead, request_context
from tests.cloud.ports import LOOPBACK

ANY = "hub:plain@127.0.0.1:0"


@pytest.fixture
async def server() -> AsyncIterator[Raw]:
    made = Raw(ANSWER)
    async with made.serve():
        yield made


@pytest.mark.parametrize("at_once", [1, -1])
async def test_a_replayed_flow_has_its_hidden_credentials(server: Raw, at_once: int) -> None:
    class Seen:
        """Record the flows that reach the addons."""

        def __init__(self, upstream: Straight) -> None:
            self._upstream = upstream
            self.listeners: list[Listener | None] = []
            self.done = asyncio.Event()

        def requestheaders(self, flow: http.HTTPFlow) -> None:
            self.listeners.append(listener_of(flow.client_conn))
            context = request_context(flow.request.path)
            lead(context, self._upstream)
            begin(flow, context)

        def response(self, flow: http.HTTPFlow) -> None:
            self.done.set()

    def saved(path: bytes) -> http.HTTPFlow:
        """Return a flow with a token as an interface loads it from its saved state."""
        request = tutils.treq(
            path=path, headers=http.Headers([(b"Authorization", b"Bearer secret")]), content=b""
        )
        hide(request)
        flow = tflow.tflow(req=request)
        flow.live = False
        flow.client_conn.proxy_mode = HubMode.parse(ANY)
        flow.client_conn.set_state(flow.client_conn.get_state())
        return flow

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


def test_flow_comments_that_mitmproxy_omits_are_exported(tmp_path: Path) -> None:
    def comment_in_har(file: Path, *, is_hub: bool) -> str:
        flow = tflow.tflow(resp=True)
        flow.comment = "kubelet ▸ relay"
        with taddons.context(SaveHar()) as context:
            if is_hub:
                change_addons(context.master)
            context.master.commands.call("save.har", [flow], str(file))
        return str(json.loads(file.read_text())["log"]["entries"][0].get("comment", ""))

    assert comment_in_har(tmp_path / "own.har", is_hub=False) == "", "mitmproxy has it now: the hub's can go"
    assert comment_in_har(tmp_path / "hub.har", is_hub=True) == "kubelet ▸ relay"


async def test_only_the_hubs_own_script_is_excluded_from_reloading(tmp_path: Path) -> None:
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


def test_no_addon_is_added_to_a_master_without_the_replaced_ones() -> None:
    with taddons.context(loadcore=False) as context:
        change_addons(context.master)
        assert context.master.addons.get("clientplayback") is None
        assert context.master.addons.get("savehar") is None
    assert HUB.is_file()


SIZE = (120, 10)


class Screen:
    """A terminal screen of SIZE columns."""

    def get_cols_rows(self) -> tuple[int, int]:
        return SIZE

    def clear(self) -> None:
        """Do nothing."""


@pytest.fixture
async def master() -> ConsoleMaster:
    made = ConsoleMaster(Options())
    screen: Any = Screen()
    made.ui = screen
    made.window = window.Window(made)
    return made


def lines(master: ConsoleMaster) -> list[str]:
    assert master.window is not None
    shown: Any = master.window.stacks[0].windows["flowlist"]
    canvas = shown.render(SIZE)
    return [text.decode().rstrip() for text in canvas.text if text.strip()]


async def test_each_line_of_the_flow_list_begins_with_its_component(master: ConsoleMaster) -> None:
    list_components(master, component_of)
    first, second = tflow.tflow(), tflow.tflow()
    first.comment, second.comment = "kube-proxy ▸ view ▸ GET /", "kubelet ▸ relay ▸ GET /"
    master.view.add([first, second])
    assert [line.split()[0] for line in lines(master)] == ["kube-proxy", "kubelet"]
    assert all("/path" in line[WIDTH:] for line in lines(master))
    second.comment = "● DRILL offline ▸ coredns ▸ relay ▸ GET /"
    master.view.update([second])
    assert [line.split()[0] for line in lines(master)] == ["kube-proxy", "coredns"]
    master.view.clear()
    assert lines(master) == []


async def test_a_long_component_name_is_truncated_in_the_flow_list(master: ConsoleMaster) -> None:
    list_components(master, component_of)
    long, without = tflow.tflow(), tflow.tflow()
    long.comment = "kube-controller-manager ▸ relay ▸ GET /"
    master.view.add([long, without])
    first, second = lines(master)
    assert first.startswith("kube-controller-m… ")
    assert not second[:WIDTH].strip()


def test_an_interface_without_a_flow_list_is_unchanged() -> None:
    with taddons.context() as context:
        list_components(context.master, component_of)


@pytest.mark.parametrize("file", sorted(each.name for each in STATIC.glob("*.css")))
async def test_only_the_interfaces_style_sheet_gets_the_hubs_rules(file: str) -> None:
    master, bound = WebMaster(Options(), with_termlog=False), socket.create_server((LOOPBACK, 0))
    port = bound.getsockname()[1]
    bound.setblocking(False)
    show_full_comments(master)
    server = HTTPServer(master.app)
    server.add_socket(bound)
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{LOOPBACK}:{port}/static/{file}") as answer,
        ):
            assert (answer.status, answer.content_type) == (200, "text/css")
            text = await answer.text()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{LOOPBACK}:{port}/static/index-none.css") as answer,
        ):
            assert answer.status == 404
    finally:
        server.stop()
        await server.close_all_connections()
    ours = STYLE if file.startswith("index-") else ""
    assert text == (STATIC / file).read_text() + ours


def test_a_page_without_a_style_sheet_is_unchanged() -> None:
    with taddons.context() as context:
        show_full_comments(context.master)
