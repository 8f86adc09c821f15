"""The reports `sources`, `views` and `watchers`."""

from __future__ import annotations

from addons.ui.reports.copies import sources, views, watchers
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import running_hub
from tests.addons.support.samples import SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching


async def test_a_source_a_view_and_a_watch(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    hub = running_hub(parts, {"filter_discardcloudservice": "chosen/services"})
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0&timeoutSeconds=9", "chosen") as watch:
        await watch.event()
        (source,) = sources(hub)
        assert source.items() >= {"path": SERVICES, "objects": 2, "error": "", "nextTry": None}.items()
        assert 0 <= source["age"] < 60
        (view,) = views(hub)
        assert (view["kept"], view["changed"], view["hidden"]) == (1, 0, 1)
        (row,) = watchers(hub)
        assert row.items() >= {"component": "chosen", "watchers": 1, "unread": 0}.items()
    assert sources(hub)[0]["views"] == 1


async def test_a_source_that_is_refused_says_when_it_tries_again(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    hub = running_hub(parts)
    cloud.faults.add(Refuse(403, "Forbidden", "no right"), times=99, when=matching(resource="services"))
    code, _ = await parts.ask(f"{SERVICES}?resourceVersion=0")
    assert code == 403
    (source,) = sources(hub)
    assert "no right" in source["error"]
    assert source["nextTry"] >= 0
    assert source["age"] is None
    assert (views(hub), watchers(hub)) == ([], [])
