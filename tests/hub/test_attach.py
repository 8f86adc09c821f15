"""A mitmproxy of a person's own is attached to a running hub: in a file, in the browser, and what the hub pays."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mitmproxy import http
from mitmproxy.io import FlowReader

from addons.ui.attached import NO_LEAVE
from addons.ui.commands.shell import run
from kube.json_type import Json
from tests.addons.support.samples import config_map, secret, service
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import ROOT, SLACK, Hub, started
from tests.hub.support.streams import watching
from tests.support.terminal import Terminal

SERVICES = "/api/v1/services"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
XSRF = "00" * 16
"""The interface wants the same in a cookie and in a header."""
SECRETS = "/api/v1/namespaces/default/secrets"
TOKEN = "secret-token-of-a-caller"
VALUE = "c2VjcmV0"
MAX_GROWTH = 15 * 1024
"""KiB of memory that a hub may take more while somebody is attached."""


def command(hub: Hub, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "addons" / "command.py"), "attach", "--admin", hub.admin_url, *words]


def environment(hub: Hub) -> dict[str, str]:
    return {"PYTHONPATH": str(ROOT), "HOME": str(hub.folder), "PATH": "/usr/bin"}


async def attach(hub: Hub, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command(hub, *words),
        env=environment(hub),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ask(hub: Hub, path: str, **headers: str) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(hub.url + path, headers={"User-Agent": "kubelet/v1", **headers}) as answer,
    ):
        await answer.read()


def wait_until_written(file: Path, what: bytes) -> None:
    """Until a file has a text: nothing tells when another process has written it."""
    end = time.monotonic() + SLACK
    while what not in file.read_bytes():
        assert time.monotonic() < end
        time.sleep(0.05)


def flows_in(file: Path) -> list[http.HTTPFlow]:
    with file.open("rb") as stream:
        return [flow for flow in FlowReader(stream).stream() if isinstance(flow, http.HTTPFlow)]


async def test_the_flows_of_a_running_hub_are_written_to_a_file(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    cloud.store.create(config_map({"filter_discardcloudservice": "kube-proxy/services#list;watch"}))
    cloud.store.create(secret(key=VALUE))
    hub, file = Hub(tmp_path, cloud.url), tmp_path / "flows"
    async with started(hub):
        async with watching(hub.url, SERVICES, component="kube-proxy", resourceVersion="0") as events:
            writing = await attach(hub, "-w", str(file))
            # A first flow in the file shows that the hub feeds it.
            while not file.exists() or not file.stat().st_size:
                await ask(hub, "/version")
            cloud.store.create(service("web"))
            await events.first("ADDED", "web")
            await ask(hub, f"{SECRETS}/s?token={TOKEN}", Authorization=f"Bearer {TOKEN}")
            await ask(hub, f"{SECRETS}/s")
            await ask(hub, "/healthz?the-last")
            await asyncio.to_thread(wait_until_written, file, b"/healthz?the-last")
        # Events are decoded a moment later than they pass, and a watch is written when it has ended.
        await asyncio.to_thread(wait_until_written, file, b"object: default/web")
        writing.send_signal(signal.SIGINT)
        _, said = await writing.communicate()
        assert writing.returncode == 0
        flows = flows_in(file)
        assert f"{file}: {len(flows)} flows" in said.decode()
        assert stat_of(file) == 0o600
        (watch,) = [each for each in flows if each.request.path.startswith(SERVICES)]
        assert watch.comment.startswith("kube-proxy ▸ view ▸ discardcloudservice")
        assert watch.request.pretty_url.startswith(hub.url)
        assert watch.websocket is not None
        assert any(b"object: default/web" in each.content for each in watch.websocket.messages)
        assert [each.request.path for each in flows if "secrets" in each.request.path]
        assert TOKEN.encode() not in file.read_bytes()
        assert VALUE.encode() not in file.read_bytes()
        # The file is there: nobody's flows are overwritten.
        assert await asyncio.to_thread(run, ["attach", "-w", str(file), "--admin", hub.admin_url]) == 1


async def test_a_hub_is_attached_to_through_a_forwarded_port(cloud: ScriptableCloud, tmp_path: Path) -> None:
    """As by `ssh -L` and `kubectl port-forward`: another port of this machine leads to the admin port."""
    hub, file = Hub(tmp_path, cloud.url), tmp_path / "flows"
    async with started(hub):
        with Link(LOOPBACK, hub.admin_port) as link:
            # The last --admin counts.
            writing = await attach(hub, "-w", str(file), "--admin", f"http://{link.host}:{link.port}")
            while not file.exists() or not file.stat().st_size:
                await ask(hub, "/version")
            writing.send_signal(signal.SIGINT)
            await writing.communicate()
        assert flows_in(file)


def stat_of(file: Path) -> int:
    return file.stat().st_mode & 0o777


async def shown(session: aiohttp.ClientSession, url: str, path: str) -> Any:
    """A flow that is over, in the browser's list; nothing tells when it is there."""
    headers = {"Authorization": "Bearer w"}
    async with asyncio.timeout(SLACK):
        while True:
            try:
                async with session.get(f"{url}/flows", headers=headers) as answer:
                    for each in await answer.json():
                        if each["request"]["path"] == path and (each.get("response") or {}).get(
                            "timestamp_end"
                        ):
                            return each
            except aiohttp.ClientError:
                pass  # the interface has not begun
            await asyncio.sleep(0.1)


def memory(hub: Hub) -> int:
    """KiB that a hub has in memory."""
    lines = Path(f"/proc/{hub.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


async def test_a_browser_is_attached_to_a_running_hub(cloud: ScriptableCloud, tmp_path: Path) -> None:
    for number in range(20):
        cloud.store.create(config_map({"text": "x" * 50_000}, name=f"made-{number}"))
    hub, port = Hub(tmp_path, cloud.url, flags=("--allow-hold",)), free_port()
    settings = (f"web_port={port}", "web_password=w", "web_open_browser=false", "intercept=~u no-such-path")
    async with started(hub):
        for _ in range(20):
            await ask(hub, "/api/v1/configmaps")
        before = memory(hub)
        viewer = await attach(hub, "--ui", "web", "--", *(w for each in settings for w in ("--set", each)))
        async with aiohttp.ClientSession() as session:
            url = f"http://{LOOPBACK}:{port}"
            beginning = asyncio.create_task(shown(session, url, "/version"))
            while not beginning.done():
                await ask(hub, "/version")
                await asyncio.wait([beginning], timeout=0.2)
            assert (await beginning)["comment"].startswith("kubelet ▸ ")
            for _ in range(60):
                await ask(hub, "/api/v1/configmaps")
            await ask(hub, "/version?the-last")
            await shown(session, url, "/version?the-last")
        assert memory(hub) - before < MAX_GROWTH
        viewer.terminate()
        await viewer.communicate()
        await ask(hub, "/version")


class Attached:
    """The browser's side of an attached process."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self.url, self._session = f"http://{LOOPBACK}:{port}", session

    async def change(self, method: str, path: str, body: Json | None = None) -> tuple[int, str]:
        """What a button does: status and text of the answer."""
        headers = {"Authorization": "Bearer w", "X-XSRFToken": XSRF, "Cookie": f"_mitmproxy_xsrf={XSRF}"}
        async with self._session.request(method, self.url + path, headers=headers, json=body) as answer:
            return answer.status, await answer.text()

    async def held(self, path: str, *, has_answer: bool = False) -> Any:
        """A flow that waits for the person; nothing tells when it is in the list."""
        async with asyncio.timeout(SLACK):
            while True:
                with suppress(aiohttp.ClientError):
                    async with self._session.get(
                        f"{self.url}/flows", headers={"Authorization": "Bearer w"}
                    ) as answer:
                        for each in await answer.json():
                            is_it = each["request"]["path"] == path and each["intercepted"]
                            if is_it and bool(each.get("response")) is has_answer:
                                return each
                await asyncio.sleep(0.1)

    async def edit(self, path: str, what: str, edit: Json) -> None:
        flow = await self.held(path, has_answer=what == "response")
        assert (await self.change("PUT", f"/flows/{flow['id']}", {what: edit}))[0] == 200
        await self.change("POST", f"/flows/{flow['id']}/resume")


async def write(hub: Hub, path: str, value: str) -> tuple[int, str]:
    """A relayed write of a component; its answer."""
    made = config_map({"key": value}, name="written")
    async with (
        aiohttp.ClientSession() as session,
        session.post(hub.url + path, json=made, headers={"User-Agent": "kubelet/v1"}) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_person_at_an_attached_browser_holds_edits_and_ends_requests(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    hub, port = Hub(tmp_path, cloud.url, flags=("--allow-hold",)), free_port()
    settings = (f"web_port={port}", "web_password=w", "web_open_browser=false")
    log = tmp_path / "hub.log"
    words = ("--ui", "web", "--hold", f"~m POST & ~u {CONFIG_MAPS}")
    await asyncio.to_thread(hub.start)
    viewer = await attach(hub, *words, "--", *(w for each in settings for w in ("--set", each)))
    try:
        async with aiohttp.ClientSession() as session:
            attached = Attached(session, port)
            beginning = asyncio.create_task(shown(session, attached.url, "/version"))
            while not beginning.done():
                await ask(hub, "/version")
                await asyncio.wait([beginning], timeout=0.2)
            await asyncio.to_thread(wait_until_written, log, b"are held")
            written = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
            edited = config_map({"key": "edited"}, name="written")
            await attached.edit(CONFIG_MAPS, "request", {"content": json.dumps(edited)})
            await attached.edit(CONFIG_MAPS, "response", {"code": 202, "content": "edited, too"})
            assert await written == (202, "edited, too")
            stored = cloud.store.get("configmaps", "written", "kube-system")
            assert stored["data"] == {"key": "edited"}
            refused = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
            await attached.edit(CONFIG_MAPS, "request", {"path": "/api/v1/nodes"})
            status, why = await refused
            assert (status, "method, path and server were decided on" in why) == (403, True)
            ended = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
            flow = await attached.held(CONFIG_MAPS)
            await attached.change("POST", f"/flows/{flow['id']}/kill")
            with pytest.raises(aiohttp.ClientError):
                await ended
            # The filter is mitmproxy's own option: nothing is held without one.
            assert (await attached.change("PUT", "/options", {"intercept": None}))[0] == 200
            await asyncio.to_thread(wait_until_written, log, b"nothing is held")
            assert (await write(hub, CONFIG_MAPS, "sent"))[0] == 409
            assert (await attached.change("PUT", "/options", {"intercept": "~all"}))[0] == 200
            await asyncio.to_thread(wait_until_written, log, b"requests of ~all are held")
            waits = asyncio.create_task(write(hub, CONFIG_MAPS, "sent"))
            await attached.held(CONFIG_MAPS)
            viewer.terminate()
            await viewer.communicate()
            assert (await waits)[0] == 409, "who leaves holds nothing"
    finally:
        if viewer.returncode is None:
            viewer.terminate()
            await viewer.communicate()
        await asyncio.to_thread(hub.stop)


async def test_a_person_at_an_attached_terminal_resumes_and_ends_what_is_held(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    hub, log = Hub(tmp_path, cloud.url, flags=("--allow-hold",)), tmp_path / "hub.log"
    await asyncio.to_thread(hub.start)
    words = ("--ui", "console", "--hold", "~m POST")
    variables = [f"{name}={value}" for name, value in environment(hub).items()]
    async with Terminal(tmp_path, ["env", *variables, "LANG=C.UTF-8", *command(hub, *words)]) as terminal:
        try:
            await asyncio.to_thread(wait_until_written, log, b"are held")
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
        finally:
            await asyncio.to_thread(hub.stop)


async def test_without_leave_nothing_is_held_and_the_interface_says_so(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    hub, port = Hub(tmp_path, cloud.url), free_port()
    settings = (f"web_port={port}", "web_password=w", "web_open_browser=false")
    await asyncio.to_thread(hub.start)
    viewer = await attach(hub, "--ui", "web", "--", *(w for each in settings for w in ("--set", each)))
    try:
        async with aiohttp.ClientSession() as session:
            attached = Attached(session, port)
            beginning = asyncio.create_task(shown(session, attached.url, "/version"))
            while not beginning.done():
                await ask(hub, "/version")
                await asyncio.wait([beginning], timeout=0.2)
            status, said = await attached.change("PUT", "/options", {"intercept": "~all"})
            assert (status, said) == (400, NO_LEAVE)
        refused = await attach(hub, "--ui", "web", "--hold", "~all")
        _, why = await refused.communicate()
        assert (refused.returncode, why.decode().splitlines()[-1]) == (1, f"edgehub: {NO_LEAVE}")
    finally:
        viewer.terminate()
        await viewer.communicate()
        await asyncio.to_thread(hub.stop)


async def test_a_hub_with_an_interface_of_its_own_says_so(cloud: ScriptableCloud, tmp_path: Path) -> None:
    settings = (f"web_port={free_port()}", "web_password=w", "web_open_browser=false")
    flags = ("--ui", "web", "--", *(word for each in settings for word in ("--set", each)))
    async with started(Hub(tmp_path, cloud.url, flags=flags)) as hub:
        refused = await attach(hub, "-w", str(tmp_path / "flows"))
        _, said = await refused.communicate()
        assert refused.returncode == 1
        assert (
            said.decode()
            .splitlines()[-1]
            .endswith("this hub has an interface of mitmproxy itself: look there")
        )
