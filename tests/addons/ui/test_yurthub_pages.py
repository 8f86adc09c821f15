"""What YurtHub's probes and tools ask of its admin port gets the same answers of the hub."""

from __future__ import annotations

from tests.addons.support.hub_parts import HubParts
from tests.addons.support.samples import metadata
from tests.addons.ui.test_admin import Pages, address, known, pages
from tests.cloud.scriptable import ScriptableCloud

__all__ = ["address", "pages"]


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
