"""The reports `sources`, `views` and `watchers`."""

from __future__ import annotations

import pytest

from addons.link.health import ServerHealth
from addons.link.servers import Server
from addons.pool.following import Following
from addons.pool.leaders import LeaderState
from addons.pool.peer_reader import PeerReader
from addons.pool.pool_config import LeaderHub
from addons.ui.reports.copies import sources, views, watchers
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import SERVICES as SERVICES_TYPE
from tests.addons.support.report_parts import read, running_hub
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
        assert (
            source.items()
            >= {"path": SERVICES, "objects": 2, "error": "", "nextTry": None, "from": "cloud"}.items()
        )
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


@pytest.mark.parametrize(
    ("name", "is_relay", "words"),
    [
        ("", False, ""),
        ("cloud", False, "cloud"),
        ("n2", False, "leader n2"),
        ("relay r:1", True, "relay r:1"),
    ],
)
async def test_from_where_a_source_reads(parts: HubParts, name: str, is_relay: bool, words: str) -> None:
    await read(parts, SERVICES_TYPE)
    (source,) = parts.sources
    following = Following("n1", 1, source.client, (), lambda: True, lambda _: 0)
    reader = PeerReader(SERVICES_TYPE, source.client, following, lambda: 0)
    reader.server = name
    if name not in ("", "cloud"):
        health = ServerHealth(Server("https", "10.0.0.2", 10269, name))
        reader.leader = LeaderState(LeaderHub(name, "10.0.0.2"), health, is_relay=is_relay)
    source.reflector.upstream = reader
    assert sources(running_hub(parts))[0]["from"] == words
