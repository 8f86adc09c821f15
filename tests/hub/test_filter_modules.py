"""A plugin filter in a running hub: online, through edits of its file, and without a cloud."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.addons.rules.test_filter_modules import blocks
from tests.addons.support.filter_plugins import text_of, write
from tests.addons.support.samples import service
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import SLACK, Hub, started
from tests.hub.support.streams import listed, watching

CANARY = {"acme.example/canary": "true"}


async def test_a_plugin_filter_is_applied_online_after_edits_and_offline(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    services = "/api/v1/services"

    async def names(hub: Hub) -> list[str]:
        return sorted(await listed(hub.url, services, component="kube-proxy", resourceVersion="0"))

    file = tmp_path / "acme.py"
    await asyncio.to_thread(write, file, blocks("python")[0])
    canary = service("api")
    canary["metadata"]["labels"] = CANARY
    for each in (service("web"), canary):
        cloud.store.create(each)
    async with started(Hub(tmp_path / "hub", cloud.url, flags=("--filter-module", str(file)))) as hub:
        assert await names(hub) == ["web"]
        asked = "component=kube-proxy&resource=services&namespace=default&name=api"
        explained = await asyncio.to_thread(hub.admin, f"/debug/explain?{asked}")
        assert "acme-canary: service default/api dropped: this node has acme.example/canary=None" in explained
        judged = {"filter": "acme-canary", "resource": "services", "outcome": "dropped"}
        assert await asyncio.to_thread(lambda: hub.metric("edgehub_filter_objects_total", **judged)) > 0
        async with watching(hub.url, services, component="kube-proxy", resourceVersion="0") as events:
            await events.until(lambda seen: [each.name for each in seen] == ["web"])
            # A broken file changes nothing, and is reported.
            await asyncio.to_thread(write, file, "FILTERS = (")
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_filter_modules_broken", 1, SLACK)
            rules = await asyncio.to_thread(hub.debug, "rules")
            assert isinstance(rules, dict)
            assert "SyntaxError" in rules["filterModules"]["problem"]
            assert [each["filter"] for each in rules["filterModules"]["filters"]] == ["acme-canary"]
            assert await names(hub) == ["web"]
            # A changed filter: the open watch gets the difference.
            await asyncio.to_thread(write, file, text_of("web"))
            seen = await events.until(lambda seen: len(seen) == 3)
            assert {(each.type, each.name) for each in seen[1:]} == {("ADDED", "api"), ("DELETED", "web")}
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_filter_modules_broken", 0, SLACK)
        await cloud.stop()
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 0, 2 * SLACK)
        assert await names(hub) == ["api"], "without a cloud as with one"


def test_a_hub_with_an_unloadable_filter_file_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "acme.py"
    write(file, "FILTERS = (")
    hub = Hub(tmp_path / "hub", "http://127.0.0.1:1", flags=("--filter-module", str(file)))
    hub.launch()
    assert f"{file}: SyntaxError" in hub.process.wait_for_line("the hub cannot start", SLACK)
    hub.stop()
