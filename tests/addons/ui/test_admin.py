"""The admin port over HTTP: liveness, readiness, metrics, and the pages for users and for YurtHub's tools."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import aiohttp
import pytest

from addons.link.drills import Drills
from addons.ui import admin_port
from addons.ui.admin_port import AdminPort
from addons.ui.attached.attachments import Attachments
from addons.ui.page import timeline
from addons.ui.page.timeline import Timeline
from addons.ui.running_hub import Readiness, RunningHub
from tests.addons.support.admin_client import AdminClient, served
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.offline_process import Process
from tests.addons.support.samples import POD, SERVICES
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.support.objects import obj


async def test_healthz_is_ok_as_soon_as_the_port_is_open(pages: AdminClient) -> None:
    assert await pages.ask("/healthz") == (200, "ok\n")
    assert await pages.ask("/v1/healthz") == (200, "OK")


async def test_readyz_is_ok_when_nothing_is_missing(hub: RunningHub) -> None:
    closed: list[str] = []
    missing: list[str] = []
    unfit: list[str] = []
    hub.rules.is_known = False
    readiness = Readiness(lambda: closed, lambda: "".join(missing), lambda: "".join(unfit))
    hub = dataclasses.replace(hub, readiness=readiness)
    async with served(hub) as pages:
        why = "the filter rules are not known yet: the hub is starting"
        assert await pages.ask("/readyz") == (503, f"{why}\n")
        assert await pages.ask("/v1/readyz") == (500, why)
        hub.rules.is_known = True
        assert await pages.ask("/readyz") == (200, "ok\n")
        assert await pages.ask("/v1/readyz") == (200, "OK")
        closed.append("127.0.0.1:10261")
        assert await pages.ask("/readyz") == (503, "not open: 127.0.0.1:10261\n")
        closed.clear()
        unfit.append("the cloud has no Node")
        assert await pages.ask("/readyz") == (503, "the cloud has no Node\n")
        assert await pages.ask("/readyz?exclude=node") == (200, "ok\n")
        assert (await pages.json("/debug/status"))["unfit"] == "the cloud has no Node"
        missing.append("nobody has signed it")
        assert await pages.ask("/readyz") == (503, "nobody has signed it\n")


async def test_metrics_are_served_for_prometheus(pages: AdminClient) -> None:
    code, text = await pages.ask("/metrics")
    assert (code, "\nedgehub_sources " in text) == (200, True)
    assert all(line.startswith(("edgehub_", "#")) for line in text.splitlines())


async def test_every_page_in_the_index_is_served(pages: AdminClient) -> None:
    _, text = await pages.ask("/debug")
    paths = text.split()
    assert {"/healthz", "/readyz", "/metrics"} < set(paths)
    assert {
        f"/debug/{name}" for name in ("servers", "sources", "views", "rules", "offline", "explain")
    } < set(paths)
    assert {path: (await pages.ask(path))[0] for path in paths} == dict.fromkeys(paths, 200)


async def test_the_index_has_links_for_a_browser(pages: AdminClient) -> None:
    for path in ("/debug", "/debug/"):
        code, text = await pages.ask(path, Accept="text/html")
        assert (code, '<a href="/debug/status">' in text) == (200, True)


async def test_the_offline_report_is_empty_in_cloud_mode(
    pages: AdminClient, hub: RunningHub, tmp_path: Path
) -> None:
    assert await pages.json("/debug/offline") == {}, "nothing is kept in cloud mode"
    async with (
        Process(tmp_path).running() as offline,
        served(dataclasses.replace(hub, offline=offline)) as keeping,
    ):
        assert await keeping.json("/debug/offline") == offline.describe()


async def test_sources_are_reported_with_their_identity(
    pages: AdminClient, parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.access.tokens["pod"] = User("system:serviceaccount:shop:web")
    secrets = "/api/v1/namespaces/default/secrets"
    await parts.names(f"{secrets}?resourceVersion=0", "kubelet", caller=POD)
    found = {each["path"]: each for each in await pages.json("/debug/sources")}
    assert set(found) == {SERVICES, secrets}
    assert found[SERVICES].items() >= {"identity": "hub", "objects": 2, "complete": True, "error": ""}.items()
    assert "system:serviceaccount:shop:web" in found[secrets]["identity"]
    assert "Bearer" not in str(found)


async def test_explain_is_served_as_text_and_as_json(pages: AdminClient) -> None:
    path = "/debug/explain?component=kubelet&resource=services&namespace=default&name=web"
    code, text = await pages.ask(path)
    assert code == 200
    assert text.startswith("kubelet list /api/v1/namespaces/default/services\nroute: view")
    found = await pages.json(path)
    assert (found["component"], found["route"], found["outcome"]) == ("kubelet", "view", "kept")


async def test_the_timeline_of_the_page_runs_without_clients(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked = asyncio.Event()

    class Ticking(Timeline):
        def tick(self) -> None:
            super().tick()
            ticked.set()

    monkeypatch.setattr(timeline, "MINUTE", 0.01)
    monkeypatch.setattr(admin_port, "Timeline", Ticking)
    settings = dataclasses.replace(hub.settings, admin_port=free_port())
    port = AdminPort(settings)
    serving = asyncio.create_task(port.serve(hub, Attachments(lambda: settings, Drills())))
    await ticked.wait()
    async with aiohttp.ClientSession() as session, session.get(settings.admin_url) as answer:
        assert "<svg" in await answer.text()
    await serving
    port.close()


@pytest.mark.parametrize("listen", ["127.0.0.1", "::1"])
async def test_the_admin_port_listens_at_the_configured_addresses(hub: RunningHub, listen: str) -> None:
    settings = dataclasses.replace(hub.settings, listen=listen)
    async with served(dataclasses.replace(hub, settings=settings)) as pages:
        assert (await pages.ask("/healthz"))[0] == 200


async def test_the_pods_page_lists_kubelets_pods(
    pages: AdminClient, hub: RunningHub, parts: HubWorld, cloud: ScriptableCloud
) -> None:
    assert (await pages.ask("/pods"))[0] == 404
    node = hub.settings.node
    pod = obj("Pod", "web", spec={"nodeName": node})
    cloud.store.create(pod)
    await parts.names(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0", "kubelet")
    found = await pages.json("/pods")
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert [each["metadata"]["name"] for each in found["items"]] == ["web"]
    assert found["items"][0]["spec"]["nodeName"] == node
