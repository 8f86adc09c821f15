"""The hub with mitmproxy's web interface: it shows a user decoded flows, with the route of each."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from kube.errors import StatusError
from kube.json_type import Json
from kube.wire.encoding import Encoding
from tests.addons.support.samples import secret, service
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.mitmweb import Mitmweb, flags, flows_in
from tests.hub.support.process import SLACK, Hub
from tests.hub.support.streams import watching

pytestmark = pytest.mark.asyncio(loop_scope="module")

HUB_TOKEN = "secret-of-the-hub"
POD_TOKEN = "secret-of-a-pod"
SECRET_VALUE = "c2VjcmV0"
SERVICES = "/api/v1/namespaces/default/services"


class WebHub(Mitmweb):
    """A hub with mitmweb."""

    def __init__(self, folder: Path, cloud: ScriptableCloud, session: aiohttp.ClientSession) -> None:
        port = free_port()
        super().__init__(session, port)
        kubeconfig = write_kubeconfig(folder / "hub.kubeconfig", cloud.url, token=HUB_TOKEN)
        self.folder = folder
        self.cloud = cloud
        self.session = session
        self.saved = folder / "flows"
        given = ("--ui", "web", "--", *flags(port), "-w", str(self.saved))
        self.hub = Hub(folder, cloud.url, kubeconfig=kubeconfig, flags=given)

    @property
    def lines(self) -> list[str]:
        """Return the text that the process wrote to its terminal; also after its end."""
        return (self.folder / "hub.log").read_text().splitlines()

    async def command(self, name: str, *arguments: str) -> Any:
        """Return the output of a command in the interface's command bar."""
        status, answer = await self.change("POST", f"/commands/{name}", {"arguments": arguments})
        assert status < 300, answer
        return json.loads(answer)

    async def shown(self, flow: Any, view: str = "auto") -> Any:
        """Return the body of the response in the default content view, or in the given one."""
        return await self.ask(f"/flows/{flow['id']}/response/content/{quote(view)}.json")

    async def get(self, path: str, accept: str, component: str = "kubelet/v1.36") -> None:
        headers = {"User-Agent": component, "Accept": accept}
        async with self.session.get(self.hub.url + path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WebHub]:
    """Run one hub for all tests of this module, as a start takes longer than all of them."""
    async with ScriptableCloud() as cloud, aiohttp.ClientSession() as session:
        cloud.access.tokens |= {HUB_TOKEN: User("system:node:node-1"), POD_TOKEN: User("pod")}
        cloud.store.create(service("web", clusterIP="10.96.0.9"))
        made = WebHub(tmp_path_factory.mktemp("hub"), cloud, session)
        await asyncio.to_thread(made.hub.start)
        yield made
        await asyncio.to_thread(made.hub.stop)


@pytest_asyncio.fixture(loop_scope="module")
async def web(running: WebHub) -> AsyncIterator[WebHub]:
    """Return the hub with an empty flow list, and one Service in its cloud."""
    await running.command("view.clear")
    yield running
    with contextlib.suppress(StatusError):
        running.cloud.store.delete("services", "late", "default")


async def test_a_secret_is_shown_without_its_values(web: WebHub) -> None:
    web.cloud.store.create(secret(k=SECRET_VALUE))
    path = "/api/v1/namespaces/default/secrets/s"
    await web.command("set", "intercept", "~u secrets")
    await web.get(path, Encoding.JSON)
    await web.command("set", "intercept", "")
    flow = await web.flow(path, lambda flow: "secrets are hidden" in flow["comment"])
    assert "not held: it may have values of Secrets" in flow["comment"]
    assert "k: (hidden, 8 characters)" in (await web.shown(flow))["text"]
    assert SECRET_VALUE not in (await web.shown(flow, "Raw"))["text"]


async def test_a_replay_runs_as_the_component_that_sent_the_request(web: WebHub) -> None:
    path = f"{SERVICES}?resourceVersion=0"
    await web.get(path, Encoding.JSON, "kube-proxy/v1")
    before = await web.flow(path)
    await web.command("replay.client", f"@{before['id']}")
    ended = before["response"]["timestamp_end"]
    again = await web.flow(
        path, lambda flow: ((flow.get("response") or {}).get("timestamp_end") or 0) > ended
    )
    assert again["id"] == before["id"]
    assert again["comment"] == before["comment"]
    assert again["comment"].startswith("kube-proxy ▸ view ▸ discardcloudservice")
    assert again["response"]["status_code"] == 200
    assert "name: web" in (await web.shown(again))["text"]


@pytest_asyncio.fixture(loop_scope="module")
async def holding(web: WebHub) -> AsyncIterator[WebHub]:
    """Intercept requests and responses of the component `held`."""
    await web.command("set", "intercept", "~hq held")
    yield web
    await web.command("set", "intercept", "")


async def test_an_edit_of_an_intercepted_relayed_request_is_sent(holding: WebHub) -> None:
    path = "/api/v1/namespaces/default/services/web"
    sent, edited = ({"spec": {"sessionAffinity": each}} for each in ("None", "ClientIP"))
    headers = {"User-Agent": "held/v1", "Content-Type": "application/merge-patch+json"}
    async with aiohttp.ClientSession(headers=headers) as session:
        asking = asyncio.create_task(session.patch(holding.hub.url + path, json=sent))
        await holding.edit(path, "request", {"content": json.dumps(edited)})
        await holding.edit(
            path, "response", {"headers": [["Content-Type", "text/plain"]], "content": "edited"}
        )
        async with asyncio.timeout(SLACK), await asking as answer:
            assert (answer.status, await answer.text()) == (200, "edited")
    assert holding.cloud.store.get("services", "web", "default")["spec"]["sessionAffinity"] == "ClientIP"


async def test_a_streamed_response_of_the_hub_is_marked_as_not_interceptable(holding: WebHub) -> None:
    """The component gets a view's list and watch at once, and the flow shows the reason."""
    await holding.command("set", "intercept", "~s & ~hq held")  # requests are not intercepted
    path, watch = f"{SERVICES}?resourceVersion=0", f"{SERVICES}?watch=true&resourceVersion=0"
    async with (
        aiohttp.ClientSession(headers={"User-Agent": "kube-proxy/held"}) as session,
        asyncio.timeout(SLACK),
    ):
        async with session.get(holding.hub.url + path) as answer:
            assert '"web"' in await answer.text()
        async with session.get(holding.hub.url + watch) as answer:
            assert b'"web"' in await answer.content.readline()
            holding.cloud.store.create(service("late"))
            assert b'"late"' in await answer.content.readline()
            for each in (path, watch):
                flow = await holding.flow(each, lambda flow: "not held" in flow["comment"])
                assert flow["comment"].startswith("kube-proxy ▸ view ▸ discardcloudservice")
                assert flow["comment"].count("not held: the hub streams this answer as it comes") == 1
                assert not flow["intercepted"]


@pytest.mark.parametrize(
    ("path", "edit", "message"),
    [
        (
            f"{SERVICES}?resourceVersion=0",
            {"path": "/api/v1/pods"},
            "the hub answers the original request itself",
        ),
        ("/api/v1/events", {"path": "/api/v1/secrets"}, "method, path and server are fixed by now"),
    ],
)
async def test_an_edit_of_options_that_identify_the_hub_is_refused(
    holding: WebHub, path: str, edit: Json, message: str
) -> None:
    await holding.command("set", "intercept", "~q & ~hq held")  # the response is not intercepted either
    agent = "kube-proxy/held" if path.startswith(SERVICES) else "held/v1"
    async with aiohttp.ClientSession(headers={"User-Agent": agent}) as session:
        asking = asyncio.create_task(session.get(holding.hub.url + path))
        await holding.edit(path, "request", edit)
        async with asyncio.timeout(SLACK), await asking as answer:
            assert answer.status == 403
            assert message in (await answer.json())["message"]


async def test_the_web_interface_shows_each_log_line_once(web: WebHub) -> None:
    messages = [each["message"] for each in await web.ask("/events")]
    for phrase in (" starts: node node-1", " are in force"):
        assert sum(phrase in line for line in messages) == 1
        await asyncio.to_thread(web.hub.process.wait_for_line, phrase, SLACK)
        assert sum(phrase in line for line in web.hub.process.lines) == 1


async def test_no_credential_is_shown_or_saved(web: WebHub) -> None:
    """Credentials: the hub's own, a caller's, one that a browser sends as a subprotocol, and one in a query. This must
    be the last test: it ends the hub, which then writes its flows to a file."""

    @contextlib.asynccontextmanager
    async def watched(web: WebHub, seconds: str) -> AsyncIterator[None]:
        """Return a watch whose first event is shown."""
        async with watching(
            web.hub.url, SERVICES, component="kubelet", resourceVersion="0", timeoutSeconds=seconds
        ):
            path = f"{SERVICES}?resourceVersion=0&timeoutSeconds={seconds}&watch=true"
            await web.flow(
                path, lambda flow: (flow.get("websocket") or {}).get("messages_meta", {}).get("count")
            )
            yield

    cloud = web.cloud
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
    users = {each.query: each.user for each in cloud.requests if each.path == "/version"}
    assert (users["n=1"], users["n=2"]) == ("system:node:node-1", "pod"), "credentials are on the wire"
    everything = json.dumps([await web.ask("/flows"), flows]) + json.dumps(await web.ask("/events"))
    async with watched(web, "600"):
        pass
    async with watched(web, "601"):  # still open when the hub ends
        await asyncio.to_thread(web.hub.stop)
    everything += (await asyncio.to_thread(web.saved.read_bytes)).decode(errors="replace")
    everything += "\n".join(web.lines)
    for each in (HUB_TOKEN, POD_TOKEN, offered, SECRET_VALUE):
        assert each not in everything
    assert "n=5" in everything
    assert "10.96.0.9" in everything, "the file has the bodies as people saw them"
    watches = {
        flow.request.query["timeoutSeconds"]: flow
        for flow in flows_in(web.saved)
        if ("timeoutSeconds" in flow.request.query)
    }
    for seconds in ("600", "601"):
        socket = watches[seconds].websocket
        assert socket is not None
        assert any(b"10.96.0.9" in each.content for each in socket.messages), "and watches have their events"
