"""A user's own mitmproxy attached to a running hub: writing a file, in the browser, and its cost for the hub."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import urllib3

from addons.ui.attached import HOLD_NOT_ALLOWED
from addons.ui.commands.shell import run
from tests.addons.support.samples import config_map, secret, service
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.mitmweb import Mitmweb, flags, flows_in
from tests.hub.support.process import ROOT, SLACK, Hub, started
from tests.hub.support.streams import watching
from tests.support.polling import eventually
from tests.support.terminal import Terminal

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


def command(hub: Hub, *arguments: str) -> list[str]:
    return [
        sys.executable,
        str(ROOT / "addons" / "command.py"),
        "attach",
        "--admin",
        hub.admin_url,
        *arguments,
    ]


def environment(hub: Hub) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "HOME": str(hub.folder), "PATH": "/usr/bin"}


async def attach(hub: Hub, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command(hub, *arguments),
        env=environment(hub),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def browser(hub: Hub, *arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Mitmweb]]:
    """Run an attached mitmproxy in the browser; yield once it shows flows."""
    port = free_port()
    viewer = await attach(hub, "--ui", "web", *arguments, "--", *flags(port))
    try:
        async with aiohttp.ClientSession() as session:
            web = Mitmweb(session, port)
            beginning = asyncio.create_task(web.flow("/version"))
            while not beginning.done():
                await ask(hub, "/version")
                await asyncio.wait([beginning], timeout=0.2)
            assert (await beginning)["comment"].startswith("kubelet ▸ ")
            yield viewer, web
    finally:
        with suppress(ProcessLookupError):
            viewer.terminate()
        await viewer.communicate()


async def ask(hub: Hub, path: str, **headers: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(hub.url + path, headers={"User-Agent": "kubelet/v1", **headers}) as answer,
    ):
        await answer.read()


def wait_until_written(file: Path, what: bytes) -> None:
    eventually(lambda: what in file.read_bytes(), str(what), SLACK)


async def test_the_flows_of_a_running_hub_are_written_to_a_file(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    cloud.store.create(config_map({"filter_discardcloudservice": "kube-proxy/services#list;watch"}))
    value = "c2VjcmV0"
    cloud.store.create(secret(key=value))
    hub, file = Hub(tmp_path, cloud.url), tmp_path / "flows"
    services = "/api/v1/services"
    secrets = "/api/v1/namespaces/default/secrets"
    token = "secret-token-of-a-caller"
    async with started(hub):
        async with watching(hub.url, services, component="kube-proxy", resourceVersion="0") as events:
            writing = await attach(hub, "-w", str(file))
            # The first flow in the file shows that the process is attached.
            while not file.exists() or not file.stat().st_size:
                await ask(hub, "/version")
            cloud.store.create(service("web"))
            await events.first("ADDED", "web")
            await ask(hub, f"{secrets}/s?token={token}", Authorization=f"Bearer {token}")
            await ask(hub, f"{secrets}/s")
            await ask(hub, "/healthz?the-last")
            await asyncio.to_thread(wait_until_written, file, b"/healthz?the-last")
        # Events are decoded shortly after they are relayed, and a watch is written when it has ended.
        await asyncio.to_thread(wait_until_written, file, b"object: default/web")
        writing.send_signal(signal.SIGINT)
        _, said = await writing.communicate()
        assert writing.returncode == 0
        flows = flows_in(file)
        assert f"{file}: {len(flows)} flows" in said.decode()
        assert (file.stat().st_mode & 511) == 0o600
        (watch,) = [each for each in flows if each.request.path.startswith(services)]
        assert watch.comment.startswith("kube-proxy ▸ view ▸ discardcloudservice")
        assert watch.request.pretty_url.startswith(hub.url)
        assert watch.websocket is not None
        assert any(b"object: default/web" in each.content for each in watch.websocket.messages)
        assert [each.request.path for each in flows if "secrets" in each.request.path]
        assert token.encode() not in file.read_bytes()
        assert value.encode() not in file.read_bytes()
        # The file exists, and its flows must not be overwritten.
        assert await asyncio.to_thread(run, ["attach", "-w", str(file), "--admin", hub.admin_url]) == 1


def memory(hub: Hub) -> int:
    """Return the resident memory of a hub in KiB."""
    lines = Path(f"/proc/{hub.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


async def test_a_browser_is_attached_to_a_running_hub(cloud: ScriptableCloud, tmp_path: Path) -> None:
    for number in range(20):
        cloud.store.create(config_map({"text": "x" * 50_000}, name=f"made-{number}"))
    # KiB by which a hub's memory may grow while a process is attached.
    max_growth = 15 * 1024
    async with started(Hub(tmp_path, cloud.url, flags=("--allow-hold",))) as hub:
        for _ in range(20):
            await ask(hub, "/api/v1/configmaps")
        before = memory(hub)
        async with browser(hub, "--hold", "~u no-such-path") as (_, web):
            for _ in range(60):
                await ask(hub, "/api/v1/configmaps")
            await ask(hub, "/version?the-last")
            await web.flow("/version?the-last")
            assert memory(hub) - before < max_growth
        await ask(hub, "/version")


async def test_attaching_again_does_not_increase_memory(cloud: ScriptableCloud, tmp_path: Path) -> None:
    """The imported modules stay in memory, and nothing else."""
    cloud.store.create(config_map({"text": "x" * 50_000}, name="large"))
    after = []
    async with started(Hub(tmp_path, cloud.url)) as hub:
        for number in range(3):
            file = tmp_path / f"flows-{number}"
            writing = await attach(hub, "-w", str(file))
            while not file.exists() or not file.stat().st_size:
                await ask(hub, "/version")
            for _ in range(40):
                await ask(hub, "/api/v1/configmaps")
            writing.send_signal(signal.SIGINT)
            await writing.communicate()
            after.append(memory(hub))
    # KiB of growth allowed after two successive attachments. Each leaked flow would take 50 KB.
    max_left = 2 * 1024
    assert after[2] - after[0] < max_left


async def write(hub: Hub, path: str, value: str) -> tuple[int, str]:
    """Send a relayed write of a component; return the response."""
    made = config_map({"key": value}, name="written")
    async with (
        aiohttp.ClientSession() as session,
        session.post(hub.url + path, json=made, headers={"User-Agent": "kubelet/v1"}) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_user_of_an_attached_browser_intercepts_edits_and_kills_requests(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    hold = f"~m POST & ~u {CONFIG_MAPS}"
    async with (
        started(Hub(tmp_path, cloud.url, flags=("--allow-hold",))) as hub,
        browser(hub, "--hold", hold) as (viewer, web),
    ):
        log = tmp_path / "hub.log"
        await asyncio.to_thread(wait_until_written, log, b"are held")
        written = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
        edited = config_map({"key": "edited"}, name="written")
        await web.edit(CONFIG_MAPS, "request", {"content": json.dumps(edited)})
        await web.edit(CONFIG_MAPS, "response", {"code": 202, "content": "edited, too"})
        assert await written == (202, "edited, too")
        stored = cloud.store.get("configmaps", "written", "kube-system")
        assert stored["data"] == {"key": "edited"}
        refused = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
        await web.edit(CONFIG_MAPS, "request", {"path": "/api/v1/nodes"})
        status, why = await refused
        assert (status, "method, path and server are fixed by now" in why) == (403, True)
        ended = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
        flow = await web.held(CONFIG_MAPS)
        await web.change("POST", f"/flows/{flow['id']}/kill")
        with pytest.raises(aiohttp.ClientError):
            await ended
        # The filter is mitmproxy's own option; nothing is intercepted without one.
        assert (await web.change("PUT", "/options", {"intercept": None}))[0] == 200
        await asyncio.to_thread(wait_until_written, log, b"nothing is held")
        assert (await write(hub, CONFIG_MAPS, "sent"))[0] == 409
        assert (await web.change("PUT", "/options", {"intercept": "~all"}))[0] == 200
        await asyncio.to_thread(wait_until_written, log, b"requests of ~all are held")
        waits = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
        await web.held(CONFIG_MAPS)
        viewer.terminate()
        assert (await waits)[0] == 409, "who leaves holds nothing"


async def test_a_user_of_an_attached_terminal_resumes_and_kills_intercepted_flows(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    async with started(Hub(tmp_path, cloud.url, flags=("--allow-hold",))) as hub:
        arguments = command(hub, "--ui", "console", "--hold", "~m POST")
        variables = [f"{name}={value}" for name, value in environment(hub).items()]
        async with Terminal(tmp_path, ["env", *variables, "LANG=C.UTF-8", *arguments]) as terminal:
            await asyncio.to_thread(wait_until_written, tmp_path / "hub.log", b"are held")
            resumed = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
            screen = await terminal.until(CONFIG_MAPS, "[1/1]", "[i:~m POST]")
            assert any(line.startswith("kubelet ") and CONFIG_MAPS in line for line in screen.splitlines())
            await terminal.press("a")
            await terminal.until("201")
            await terminal.press("a")
            assert (await resumed)[0] == 201
            ended = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
            await terminal.until("[1/2]")
            await terminal.press("Down", "X")
            with pytest.raises(aiohttp.ClientError):
                await ended
            await terminal.press("q", "y")
            await terminal.ended()


async def test_no_flow_is_intercepted_without_permission_and_the_interface_reports_it(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    async with started(Hub(tmp_path, cloud.url)) as hub, browser(hub) as (_, web):
        assert await web.change("PUT", "/options", {"intercept": "~all"}) == (400, HOLD_NOT_ALLOWED)
        refused = await attach(hub, "--ui", "web", "--hold", "~all")
        _, why = await refused.communicate()
        assert (refused.returncode, why.decode().splitlines()[-1]) == (1, f"edgehub: {HOLD_NOT_ALLOWED}")


async def test_an_attached_console_has_the_commands_of_the_hub(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    """Once only the hub's own interface had them."""

    def ask_as_kube_proxy(hub: Hub) -> None:
        url, headers = f"{hub.url}/api/v1/services?resourceVersion=0", {"User-Agent": "kube-proxy/v1.36"}
        assert urllib3.request("GET", url, headers=headers, retries=False).status == 200

    cloud.store.create(service("lb", type="LoadBalancer"))
    hub = Hub(tmp_path, cloud.url, flags=("--allow-drills",))
    attached = shlex.join(command(hub, "--ui", "console"))
    async with (
        started(hub),
        Terminal(tmp_path, ["sh", "-c", f"PYTHONPATH={ROOT} exec {attached}"]) as terminal,
    ):
        await terminal.until("Flows")
        while "kube-proxy" not in await terminal.screen():
            await asyncio.to_thread(
                ask_as_kube_proxy, hub
            )  # a flow is shown only once the process is attached
        for asked, *shown in (
            ("edgehub.status", "node:     node-1", "journal:  0 writes wait"),
            ("edgehub.components", "COMPONENT", "kube-proxy"),
            ("edgehub.explain.all kube-proxy services", "rule: discardcloudservice", "default/lb"),
            ("edgehub.dump services", "kind: Service", "name: lb"),
            ("edgehub.link offline", "DRILL: the link is offline until"),
            ("edgehub.explain.flow @focus", "kube-proxy list /api/v1/services", "default/lb"),
            ("edgehub.link online", "the link is as it is; drills are allowed"),
            ("edgehub.rules.try nothing.yaml", "No such file or directory"),
        ):
            await terminal.press(":", asked, "Enter")
            await terminal.until(*shown)
            await terminal.press("q")
        await terminal.press("q", "y")
        await terminal.ended()
