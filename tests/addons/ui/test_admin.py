"""The admin port over HTTP: alive, ready, metrics, and the pages for people."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from addons.filters.chain import FILTERS
from addons.inputs.config_maps import one_config_map
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.rules.in_force import RulesInForce
from addons.settings import Settings, parse_settings
from addons.ui.admin import Admin
from addons.ui.reports.running_hub import RunningHub
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.offline_process import Process
from tests.addons.support.samples import POD, SERVICES, metadata, service
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User

SECRETS = "/api/v1/namespaces/default/secrets"


def settings(**given: Any) -> Settings:
    return parse_settings({"server": "https://a:6443", "admin_port": free_port(), **given})


class Pages:
    """A running admin server, and a client of it."""

    def __init__(self, parts: HubParts, session: aiohttp.ClientSession, given: Settings) -> None:
        self.servers = Cloud([ServerHealth(parse_server("https://a:6443"))], "priority")
        source = parts.sources.get(HUB_IDENTITY, one_config_map(given.namespace, given.configmap))
        self.rules = RulesInForce(FILTERS, frozenset(), lambda *_: None)
        self.rules.follow(source.store, source.why_empty)
        self.closed: list[str] = []
        self.missing = ""
        self.hub = RunningHub(
            *(given, self.servers, parts.sources, parts.inputs, self.rules),
            closed=lambda: list(self.closed),
            waits_for=lambda: self.missing,
        )
        self.admin = Admin(self.hub)
        self._session = session
        host = f"[{given.listen}]" if ":" in given.listen else given.listen
        self._url = f"http://{host}:{given.admin_port}"

    async def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        """Code, media type and body."""
        async with self._session.get(self._url + path, headers=headers) as response:
            return response.status, response.content_type, await response.text(errors="replace")

    async def json(self, path: str) -> Any:
        async with self._session.get(self._url + path, headers={"Accept": "application/json"}) as response:
            assert (response.status, response.content_type) == (200, "application/json")
            return await response.json()


@pytest.fixture(params=["127.0.0.1", "::1"])
def address(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
async def pages(parts: HubParts) -> AsyncIterator[Pages]:
    async with aiohttp.ClientSession() as session:
        made = Pages(parts, session, settings())
        await made.admin.start()
        yield made
    made.admin.close()


async def known(pages: Pages) -> None:
    await pages.rules.wait_known(2)


async def test_alive_as_soon_as_it_answers(pages: Pages) -> None:
    assert (await pages.get("/healthz"))[::2] == (200, "ok\n")


async def test_ready_when_the_rules_are_known(pages: Pages, cloud: ScriptableCloud) -> None:
    code, _, text = await pages.get("/readyz")
    assert code == 503
    assert text == "the filter rules are not known yet: the cloud has not answered yet\n"
    await known(pages)
    assert (await pages.get("/readyz"))[::2] == (200, "ok\n")
    pages.closed = ["127.0.0.1:10261"]
    assert (await pages.get("/readyz"))[::2] == (503, "not open: 127.0.0.1:10261\n")
    pages.missing = "nobody has signed it"
    assert (await pages.get("/readyz"))[::2] == (503, "nobody has signed it\n")


async def test_metrics_for_prometheus(pages: Pages) -> None:
    code, media_type, text = await pages.get("/metrics")
    assert (code, media_type) == (200, "text/plain")
    assert "\nedgehub_sources " in text
    assert all(line.startswith(("edgehub_", "#")) for line in text.splitlines())


async def test_the_index_names_every_page_and_each_is_there(pages: Pages) -> None:
    _, _, text = await pages.get("/debug")
    paths = text.split()
    assert {"/healthz", "/readyz", "/metrics"} < set(paths)
    assert {
        f"/debug/{name}" for name in ("servers", "sources", "views", "rules", "offline", "explain")
    } < set(paths)
    await known(pages)
    assert {path: (await pages.get(path))[0] for path in paths} == dict.fromkeys(paths, 200)


async def test_what_the_node_does_without_the_cloud(pages: Pages, tmp_path: Path) -> None:
    assert await pages.json("/debug/offline") == {}, "nothing is kept in cloud mode"
    async with Process(tmp_path).running() as offline:
        pages.admin._pages._hub = dataclasses.replace(pages.hub, offline=offline)
        assert await pages.json("/debug/offline") == offline.describe()


async def test_sources_and_whose_they_are(pages: Pages, parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.access.tokens["pod"] = User("system:serviceaccount:shop:web")
    cloud.store.create(service("web"))
    await parts.names(f"{SERVICES}?resourceVersion=0")
    await parts.names(f"{SECRETS}?resourceVersion=0", caller=POD)
    found = {each["path"]: each for each in await pages.json("/debug/sources")}
    assert set(found) == {SERVICES, SECRETS, "/api/v1/namespaces/kube-system/configmaps"}
    assert found[SERVICES].items() >= {"identity": "hub", "objects": 1, "complete": True, "error": ""}.items()
    assert "system:serviceaccount:shop:web" in found[SECRETS]["identity"]
    assert "Bearer" not in str(found)


async def test_explain_for_people_and_for_tools(
    pages: Pages, parts: HubParts, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    await parts.names(f"{SERVICES}?resourceVersion=0")
    path = "/debug/explain?component=kubelet&resource=services&namespace=default&name=web"
    code, media_type, text = await pages.get(path)
    assert (code, media_type) == (200, "text/plain")
    assert text.startswith("kubelet list /api/v1/namespaces/default/services\nroute: view")
    found = await pages.json(path)
    assert (found["component"], found["route"], found["outcome"]) == ("kubelet", "view", "kept")


async def test_it_listens_where_the_settings_say(parts: HubParts, address: str) -> None:
    async with aiohttp.ClientSession() as session:
        made = Pages(parts, session, settings(listen=address))
        await made.admin.start()
        assert (await made.get("/healthz"))[0] == 200
    made.admin.close()


async def test_alive_and_ready(pages: Pages) -> None:
    assert (await pages.get("/v1/healthz"))[::2] == (200, "OK")
    await known(pages)
    pages.missing = "nobody has signed it"
    assert (await pages.get("/v1/readyz"))[::2] == (500, "nobody has signed it")
    pages.missing = ""
    assert (await pages.get("/v1/readyz"))[::2] == (200, "OK")


async def test_pods_are_those_that_kubelet_has(pages: Pages, parts: HubParts, cloud: ScriptableCloud) -> None:
    assert (await pages.get("/pods"))[0] == 404
    node = pages.hub.settings.node
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata("web"), "spec": {"nodeName": node}}
    cloud.store.create(pod)
    await parts.names(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0")
    found = await pages.json("/pods")
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert [each["metadata"]["name"] for each in found["items"]] == ["web"]
    assert found["items"][0]["spec"]["nodeName"] == node
