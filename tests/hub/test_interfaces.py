"""mitmproxy's interfaces as a user operates them, in the browser and the terminal, and their memory."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from scripts.benchmark.load import resident_megabytes
from tests.addons.support.samples import config_map, service
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started
from tests.support.browser import Browser
from tests.support.terminal import Terminal

SERVICES = "/api/v1/services"
PROXY = {"User-Agent": "kube-proxy/v1.36"}


@pytest.fixture
async def session(cloud: ScriptableCloud) -> AsyncIterator[aiohttp.ClientSession]:
    """A component, and a Service in the cloud."""
    cloud.store.create(service("web"))
    async with aiohttp.ClientSession(headers=PROXY) as made:
        yield made


async def listed(session: aiohttp.ClientSession, hub: Hub) -> None:
    async with session.get(f"{hub.url}{SERVICES}?resourceVersion=0") as answer:
        assert answer.status == 200, await answer.text()
        assert '"web"' in await answer.text()


async def test_a_user_follows_a_watch_in_the_browser(
    tmp_path: Path, cloud: ScriptableCloud, session: aiohttp.ClientSession
) -> None:
    """From the address printed by the hub to a hidden event and its reason."""
    port = free_port()
    flags = ("--ui", "web", "--", "--set", f"web_port={port}", "--set", "web_open_browser=false")
    hub = Hub(tmp_path, cloud.url, flags=flags)
    async with Browser(tmp_path) as browser, started(hub):
        line = await asyncio.to_thread(hub.process.wait_for_line, "edgehub: open http", 30)
        address = line.partition("open ")[2].strip()
        assert address.startswith(f"http://{LOOPBACK}:{port}/?token=")
        assert address in await asyncio.to_thread(hub.admin, "/debug")
        await listed(session, hub)
        async with session.get(f"{hub.url}{SERVICES}?watch=true&resourceVersion=0") as watch:
            assert watch.status == 200
            await browser.open(address)
            shown = await browser.until_text("kube-proxy ▸ view", "watch=true")
            assert "/livez" not in shown, "the hub's own probes are hidden"
            cells = "[...document.querySelectorAll('td.col-comment')]"
            assert await browser.run(f"{cells}.every(e => e.scrollWidth <= e.clientWidth)"), "none is cut"
            assert await browser.run(f"{cells}[0].clientWidth > innerWidth / 2")
            await browser.click(
                "[...document.querySelectorAll('tr')].find(e => e.innerText.includes('watch=true'))"
            )
            await browser.click(
                "[...document.querySelectorAll('nav a')].find(e => e.innerText.trim() === 'WebSocket')"
            )
            await browser.until_text("object: default/web", "type: ADDED")
            cloud.store.create(service("hidden", type="LoadBalancer"))
            await browser.until_text("the cloud sent", "object: default/hidden", "outcome: dropped")


async def test_a_report_is_shown_in_the_browsers_event_log(tmp_path: Path, cloud: ScriptableCloud) -> None:
    """The report was once logged at a level that mitmweb's event log omits."""
    flags = ("--ui", "web", "--", "--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    hub = Hub(tmp_path, cloud.url, flags=flags)
    async with Browser(tmp_path) as browser, started(hub):
        line = await asyncio.to_thread(hub.process.wait_for_line, "edgehub: open http", 30)
        await browser.open(line.partition("open ")[2].strip())
        await browser.click("[...document.querySelectorAll('a')].find(e => e.innerText === 'Options')")
        for shown in ("Display Command Bar", "Display Event Log"):
            await browser.click(
                f"[...document.querySelectorAll('label')].find(e => e.innerText.includes('{shown}'))"
                "?.querySelector('input')"
            )
        # Commands are refused until the page has its cookie; log lines are repeated until it has fetched the log.
        await browser.until("document.cookie.includes('_xsrf=')")
        await browser.until_text("are in force")
        for command, lines in (
            ("edgehub.status", ("Online for ", "node:     node-1", "journal:  0 writes wait")),
            ("edgehub.sources", ("PATH  ", "/api/v1/namespaces/kube-system/configmaps")),
            ("edgehub.explain.all kube-proxy services", ("kube-proxy list ",)),
        ):
            await browser.focus("document.querySelector('.command input')")
            await browser.type(command)
            await browser.until(f"document.activeElement.value === {command!r}")
            await browser.press("Enter")
            shown = await browser.until_text(*lines)
        assert sum(line.endswith("] node:     node-1") for line in shown.splitlines()) == 1
        log = await asyncio.to_thread(hub.admin, "/debug/log")
        assert sum(line.endswith(": node:     node-1") for line in log.splitlines()) == 1


async def test_a_user_follows_a_component_through_an_outage_in_the_terminal(
    tmp_path: Path, cloud: ScriptableCloud, session: aiohttp.ClientSession
) -> None:
    """Lists, the log and a response from the copy; no log line is written over the screen."""
    made = Hub(tmp_path, cloud.url, flags=("--ui", "console"))
    command = shlex.join(made.command)
    async with Terminal(tmp_path, ["sh", "-c", f"exec {command}"]) as terminal:
        await made.started_elsewhere()
        await listed(session, made)
        shown = await terminal.until(SERVICES, "[1/1]")
        assert any(line.startswith("kube-proxy ") and SERVICES in line for line in shown.splitlines())
        await terminal.press("Enter")
        await terminal.until("User-Agent", "kube-proxy/v1.36")
        await terminal.press("Right")
        await terminal.until("Kubernetes", "kind: ServiceList", "name: web")
        await terminal.press("Right")
        await terminal.until("Comment: kube-proxy ▸ view ▸ discardcloudservice")
        # The command line: explain the flow, and start an offline drill.
        await terminal.press(":", "edgehub.explain.flow @focus", "Enter")
        await terminal.until("kube-proxy list /api/v1/services", "rule: discardcloudservice", "1 kept")
        await terminal.press("q")
        await terminal.press(":", "edgehub.link offline", "Enter")
        await terminal.until("DRILL: the link is offline until")
        await terminal.press("q")
        await asyncio.to_thread(made.wait_for_metric, "edgehub_server_up", 0, 60.0)
        await terminal.press(":", "edgehub.link online", "Enter")
        await terminal.until("the link is as it is; drills are allowed")
        await terminal.press("q")
        await asyncio.to_thread(made.wait_for_metric, "edgehub_server_up", 1, 60.0)
        await cloud.stop()
        await asyncio.to_thread(made.wait_for_metric, "edgehub_server_up", 0, 60.0)
        await listed(session, made)
        await terminal.press("q")
        shown = await terminal.until("/2]")
        assert "edgehub.upstream" not in shown, "the log is not written over the screen"
        await terminal.press("E")
        await terminal.until("offline since ", "answering from copies")
        await terminal.press("q")
        await terminal.until("/2]")
        await terminal.press("q", "y")
        await terminal.ended()


REQUESTS, BYTES, CLIENTS = 360, 600_000, 4
"""A load in which each response is retained completely, within the bound."""


async def test_a_hub_with_an_interface_has_bounded_memory_after_many_requests(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    """Few large requests, of the same total size as the ten thousand of `scripts/bench --interface`."""
    cloud.store.create(config_map({"text": "x" * BYTES}))
    settings = ("--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    hub = Hub(tmp_path, cloud.url, flags=("--ui", "web", "--", *settings))
    url = f"{hub.url}/api/v1/namespaces/kube-system/configmaps/yurt-hub-cfg"
    left = iter(range(REQUESTS))

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.get(url) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

    # The maximum resident megabytes of the hub: 170 here, 330 if every flow were retained.
    most = 250
    async with started(hub):
        async with aiohttp.ClientSession(headers={"User-Agent": "kubelet/v1.36"}) as session:
            await asyncio.gather(*(client(session) for _ in range(CLIENTS)))
        assert resident_megabytes(hub.pid, "VmHWM") < most
        assert await asyncio.to_thread(hub.metric, "edgehub_flows_removed_total") > 0
