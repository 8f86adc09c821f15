"""The hub accepts the versions that it gave in lists, WatchLists and watches."""

from __future__ import annotations

import asyncio
import json

import pytest

from addons.views import serving
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.samples import SERVICES, node, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.request_log import LoggedRequest, matching

WATCH_LIST = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
RULES = {"cache_agents": "cached", "filter_discardcloudservice": "cached/services"}


@pytest.fixture
async def ahead(parts: HubParts, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch) -> int:
    """A version that a consistent list of a filtered view carried, and that no event of the source has reached."""
    monkeypatch.setattr(serving, "FUTURE_WAIT", 0.05)
    parts.set_rules(RULES)
    cloud.store.create(service("web"))
    await parts.names(f"{SERVICES}?resourceVersion=0")
    cloud.store.create(node("elsewhere"))
    _, found = await parts.ask(SERVICES)
    (source,) = [each for each in parts.sources if each.list_watch.type.resource == "services"]
    version = int(found["metadata"]["resourceVersion"])
    assert source.store.version < version == source.store.given_version
    return version


@pytest.mark.parametrize("match", ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact"])
@pytest.mark.parametrize("path", [SERVICES, "/api/v1/namespaces/default/services"])
async def test_a_list_at_a_version_that_the_hub_gave_is_answered(
    parts: HubParts, ahead: int, match: str, path: str
) -> None:
    """The hub once answered such a list with 504, after three seconds."""
    code, found = await parts.ask(f"{path}?resourceVersion={ahead}{match}")
    assert code == 200
    assert [item["metadata"]["name"] for item in found["items"]] == ["web"]
    assert int(found["metadata"]["resourceVersion"]) >= ahead


async def test_a_watch_list_at_a_version_that_the_hub_gave_ends_its_state_there(
    parts: HubParts, ahead: int
) -> None:
    async with parts.watch(f"{SERVICES}?{WATCH_LIST}&resourceVersion={ahead}") as watch:
        assert await watch.event() == ("ADDED", "web")
        assert int(json.loads((await watch.next()).raw)["metadata"]["resourceVersion"]) >= ahead


async def test_a_version_that_the_hub_gave_is_taken_without_a_cloud(
    parts: HubParts, cloud: ScriptableCloud, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in parts.sources:
        monkeypatch.setattr(source, "is_up", lambda: False)
    await cloud.stop()
    code, found = await parts.ask(f"{SERVICES}?resourceVersion={ahead}")
    assert (code, found["metadata"]["resourceVersion"]) == (200, str(ahead))


async def test_a_version_that_another_hub_gave_is_confirmed_by_the_cloud(parts: HubParts, ahead: int) -> None:
    """An earlier process of this hub may have given it, too."""
    for source in parts.sources:
        source.store.given_version = 0
    code, found = await parts.ask(f"{SERVICES}?resourceVersion={ahead}")
    assert code == 200
    assert int(found["metadata"]["resourceVersion"]) >= ahead


async def test_a_version_that_nobody_gave_is_too_large(parts: HubParts, ahead: int) -> None:
    async with asyncio.timeout(10):
        code, found = await parts.ask(f"{SERVICES}?resourceVersion={ahead + 1000}")
    assert (code, found["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_a_version_that_a_client_gets_ahead_of_events_is_asked_of_the_cloud(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    """The source would be behind its client until the next event, and after a restart of the hub refuse it."""
    parts.set_rules(RULES)
    cloud.watches.bookmark_interval = 0.01
    await parts.names(f"{SERVICES}?resourceVersion=0")
    (source,) = [each for each in parts.sources if each.list_watch.type.resource == "services"]
    await cloud.requests.until(_asks_no_bookmarks)
    cloud.store.create(node("elsewhere"))
    assert source.store.version < cloud.store.version
    await parts.ask(SERVICES)
    async with asyncio.timeout(10):
        while source.store.version < cloud.store.version:
            await source.store.next_update()


def _asks_no_bookmarks(request: LoggedRequest) -> bool:
    is_watch = matching(verb="watch", resource="services")(request)
    return is_watch and "allowWatchBookmarks" not in request.query
