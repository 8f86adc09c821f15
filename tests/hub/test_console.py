"""The hub with mitmproxy's web interface: flows that a person sees decoded, with the way that each went."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mitmproxy.utils.emoji import emoji

from kube.wire.encoding import Encoding
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.process import Hub

TOKEN = "a-password-of-the-test"
XSRF = "00" * 16
"""The interface wants the same in a cookie and in a header."""
HUB_TOKEN = "secret-of-the-hub"
POD_TOKEN = "secret-of-a-pod"
SERVICES = "/api/v1/namespaces/default/services"
WAIT = 10.0
"""Seconds for a flow to be in the interface's list; it takes milliseconds."""


class WebHub:
    """A hub with mitmweb, which keeps the bodies that it streams."""

    def __init__(self, folder: Path, cloud: ScriptableCloud, session: aiohttp.ClientSession) -> None:
        web_port = free_port()
        options = {
            "web_port": web_port,
            "web_password": TOKEN,
            "web_open_browser": "false",
            "store_streamed_bodies": "true",
        }
        settings = [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
        kubeconfig = write_kubeconfig(folder / "hub.kubeconfig", cloud.url, token=HUB_TOKEN)
        self.folder = folder
        self.saved = folder / "flows"
        given = ("--ui", "web", "--", *settings, "-w", str(self.saved))
        self.hub = Hub(folder, cloud.url, kubeconfig=kubeconfig, flags=given)
        self._web = f"http://{LOOPBACK}:{web_port}"
        self._session = session

    @property
    def lines(self) -> list[str]:
        """What the process wrote to its terminal; also when it has ended."""
        return (self.folder / "hub.log").read_text().splitlines()

    async def ask(self, path: str) -> Any:
        async with self._session.get(
            self._web + path, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def command(self, name: str, *arguments: str) -> Any:
        """What a command of the interface's prompt says."""
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "X-XSRFToken": XSRF,
            "Cookie": f"_mitmproxy_xsrf={XSRF}",
        }
        async with self._session.post(
            f"{self._web}/commands/{name}", headers=headers, json={"arguments": arguments}
        ) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def flow(self, path: str) -> Any:
        """The flow of a request, as soon as it is over; the interface has no way to wait for one."""
        async with asyncio.timeout(WAIT):
            while True:
                for flow in await self.ask("/flows"):
                    over = flow["response"] is not None and flow["response"]["timestamp_end"]
                    if flow["request"]["path"] == path and over:
                        return flow
                await asyncio.sleep(0.05)

    async def shown(self, flow: Any) -> Any:
        """The body of the answer in the view that fits it."""
        return await self.ask(f"/flows/{flow['id']}/response/content/auto.json")

    async def get(self, path: str, accept: str) -> None:
        headers = {"User-Agent": "kubelet/v1.36", "Accept": accept}
        async with self._session.get(self.hub.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()


@pytest.fixture
async def web(tmp_path: Path, cloud: ScriptableCloud) -> AsyncIterator[WebHub]:
    cloud.access.tokens |= {HUB_TOKEN: User("system:node:node-1"), POD_TOKEN: User("pod")}
    cloud.store.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"ports": [{"name": "http", "port": 80}], "clusterIP": "10.96.0.9"},
        }
    )
    async with aiohttp.ClientSession() as session:
        made = WebHub(tmp_path, cloud, session)
        await asyncio.to_thread(made.hub.start)
        yield made
        await asyncio.to_thread(made.hub.stop)


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_list_is_shown_decoded_with_its_route(web: WebHub, encoding: Encoding) -> None:
    path = f"{SERVICES}?resourceVersion=0"
    await web.get(path, encoding)
    flow = await web.flow(path)
    assert flow["comment"].startswith("kubelet: view, ")
    assert flow["marked"] == emoji[":house:"]
    shown = await web.shown(flow)
    assert shown["view_name"] == "Kubernetes"
    assert "kind: ServiceList" in shown["text"]
    assert "clusterIP: 10.96.0.9" in shown["text"]


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_watch_that_has_ended_is_shown_event_by_event(web: WebHub, encoding: Encoding) -> None:
    path = f"{SERVICES}?watch=true&resourceVersion=0&timeoutSeconds=1"
    await web.get(path, f"{encoding};stream=watch" if encoding is Encoding.PROTOBUF else encoding)
    shown = await web.shown(await web.flow(path))
    assert shown["view_name"] == "Kubernetes watch"
    assert "type: ADDED" in shown["text"]
    assert "object: default/web" in shown["text"]


async def test_a_person_asks_why(web: WebHub) -> None:
    await web.get(f"{SERVICES}?resourceVersion=0", Encoding.JSON)
    said = await web.command("edgehub.explain", "kubelet", "services", "default", "web")
    assert "kubelet" in said["value"]
    assert "view" in said["value"]


async def test_no_credential_is_shown_or_saved(web: WebHub, cloud: ScriptableCloud) -> None:
    """The hub's own, a caller's, one that a browser offers as a subprotocol, and one in a query."""
    offered = base64.urlsafe_b64encode(POD_TOKEN.encode()).decode().rstrip("=")
    asked = {
        "/version?n=1": {},
        "/version?n=2": {"Authorization": f"Bearer {POD_TOKEN}"},
        "/version?n=3": {"Sec-WebSocket-Protocol": f"base64url.bearer.authorization.k8s.io.{offered}"},
        "/version?n=4&access_token=hidden": {"Cookie": f"session={POD_TOKEN}"},
        "/version?n=5": {"Authorization": f"{POD_TOKEN}"},
    }
    cloud.requests.clear()
    async with aiohttp.ClientSession() as session:
        for path, headers in asked.items():
            url = web.hub.url + path.replace("hidden", POD_TOKEN)
            async with session.get(url, headers=headers) as answer:
                await answer.read()
    flows = [await web.flow(path) for path in asked]
    users = [each.user for each in cloud.requests if each.path == "/version"]
    assert users[:2] == ["system:node:node-1", "pod"], "credentials are on the wire"
    everything = json.dumps([await web.ask("/flows"), flows]) + json.dumps(await web.ask("/events"))
    await asyncio.to_thread(web.hub.stop)
    everything += (await asyncio.to_thread(web.saved.read_bytes)).decode(errors="replace")
    everything += "\n".join(web.lines)
    for secret in (HUB_TOKEN, POD_TOKEN, offered):
        assert secret not in everything
    assert "n=5" in everything


async def test_the_web_interface_has_each_line_of_the_log_once(web: WebHub) -> None:
    told = [each["message"] for each in await web.ask("/events")]
    for words in (" starts: node node-1", "ready"):
        assert sum(words in line for line in told) == 1
        assert sum(words in line for line in web.lines) == 1
