"""However the hub is started, and whatever a user changes in an interface: only the hub's ports are open."""

from __future__ import annotations

import asyncio
import shlex
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.processes import Process
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import ROOT, Hub, started
from tests.support.browser import Browser
from tests.support.terminal import Terminal

REFUSED = "the hub owns the ports of this process"


async def serves(hub: Hub) -> None:
    """Check that the plain port answers on a new connection."""
    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/version") as answer:
        assert answer.status == 200, await answer.text()


async def test_an_option_in_mitmweb_that_changes_ports_is_refused(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    """The option once closed both ports, and opened 8080 on all addresses."""
    flags = ("--ui", "web", "--", "--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    hub = Hub(tmp_path, cloud.url, flags=flags)
    async with Browser(tmp_path) as browser, started(hub):
        line = await asyncio.to_thread(hub.process.wait_for_line, "edgehub: open http", 30)
        await browser.open(line.partition("open ")[2].strip())
        await serves(hub)
        plain, tls = f"{LOOPBACK}:{hub.port}", f"{LOOPBACK}:{hub.tls_port}"
        shown = await browser.until_text(f"hub:plain@{plain},hub:tls@{tls}", "Method", "Time")
        assert f"\n{plain}" in shown, "the address on the right of the status bar"
        assert "8080" not in shown
        await browser.click("[...document.querySelectorAll('a')].find(e => e.innerText === 'Capture')")
        ticks = "[...document.querySelectorAll('input[type=checkbox]')]"
        await browser.until_text("Run HTTP/S Proxy")
        await browser.click(f"{ticks}[0]")
        await browser.until_text(REFUSED)
        await serves(hub)
        assert await asyncio.to_thread(hub.metric, "edgehub_listeners_lost_total") == 0


async def test_a_console_command_that_changes_ports_is_refused(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    hub = Hub(tmp_path, cloud.url, flags=("--ui", "console"))
    async with Terminal(tmp_path, ["sh", "-c", f"exec {shlex.join(hub.command)}"]) as terminal:
        await hub.started_elsewhere()
        for command, why in (
            *((command, REFUSED) for command in ("set server=false", "set mode=regular", "set mode=")),
            ("set scripts=none.py", "hub.py: add scripts to these"),
            ("set scripts=", "hub.py: add scripts to these"),
        ):
            await terminal.press(":", command, "Enter")
            await terminal.until(why)
            await serves(hub)
            await terminal.press(":", "set console_mouse=true", "Enter")  # dismiss the message
            await asyncio.sleep(0.2)
        for command in ("options.reset.one mode", "options.reset"):
            await terminal.press(":", command, "Enter")
            await asyncio.sleep(2)  # the hub checks once a second
        await serves(hub)
        assert await asyncio.to_thread(hub.metric, "edgehub_listeners_closed") == 0
        await terminal.press("q", "y")
        await terminal.ended()


@pytest.mark.parametrize("program", ["mitmdump", "mitmweb", "mitmproxy"])
async def test_programs_of_mitmproxy_listen_on_the_ports_of_the_hub(
    tmp_path: Path, cloud: ScriptableCloud, program: str
) -> None:
    """These programs once opened mitmproxy's own port first, and ended if it was in use."""
    hub = Hub(tmp_path, cloud.url)
    options = {
        "server": cloud.url,
        "node": "n1",
        "state_dir": str(hub.state),
        "admin_port": hub.admin_port,
        "port": hub.port,
        "tls_port": 0,
        "peer_port": 0,
    }
    settings = [part for name, value in options.items() for part in ("--set", f"hub_{name}={value}")]
    if program == "mitmweb":
        settings += ["--set", f"web_port={free_port()}", "--set", "web_open_browser=false"]
    with socket.create_server(("0.0.0.0", 0)) as taken:  # noqa: S104 - nobody accepts there
        port = str(taken.getsockname()[1])
        command = [str(Path(sys.executable).with_name(program)), "-p", port, "-s"]
        command += [str(ROOT / "addons" / "hub.py"), *settings]
        if program == "mitmproxy":
            async with Terminal(tmp_path, ["env", f"PYTHONPATH={ROOT}", *command]) as terminal:
                await hub.started_elsewhere()
                await terminal.until(f"[{LOOPBACK}:{hub.port}]")
                await serves(hub)
            return
        process = await asyncio.to_thread(Process, program, command, tmp_path, {"PYTHONPATH": str(ROOT)})
        try:
            await hub.started_elsewhere()
            await serves(hub)
            assert not any("8080" in line or f":{port}" in line for line in process.lines)
        finally:
            await asyncio.to_thread(process.stop)
