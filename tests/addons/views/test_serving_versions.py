"""Versions of views: lists at a version, and watches that end and resume."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress

import pytest

from addons.views import serving
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.watcher import Watcher
from kube.wire.codec import WatchFrame, codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.hub_world import HubWorld, name_of
from tests.addons.support.observed import until
from tests.addons.support.samples import SERVICES, node, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.request_log import LoggedRequest, matching

WATCH_LIST = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
RULES = {"cache_agents": "cached", "filter_discardcloudservice": "cached/services"}


@pytest.fixture
async def ahead(parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a version from a consistent list of a filtered view that no event of the source has reached."""
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
async def test_a_list_at_a_version_that_the_hub_issued_is_served(
    parts: HubWorld, ahead: int, match: str, path: str
) -> None:
    """Such a list was once 504 after three seconds."""
    code, found = await parts.ask(f"{path}?resourceVersion={ahead}{match}")
    assert code == 200
    assert [item["metadata"]["name"] for item in found["items"]] == ["web"]
    assert int(found["metadata"]["resourceVersion"]) >= ahead


async def test_a_watchlist_at_an_issued_version_has_its_bookmark_at_that_version(
    parts: HubWorld, ahead: int
) -> None:
    async with parts.watch(f"{SERVICES}?{WATCH_LIST}&resourceVersion={ahead}") as watch:
        assert await watch.event() == ("ADDED", "web")
        assert int(json.loads((await watch.next()).raw)["metadata"]["resourceVersion"]) >= ahead


async def test_a_version_that_the_hub_issued_is_accepted_offline(
    parts: HubWorld, cloud: ScriptableCloud, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in parts.sources:
        monkeypatch.setattr(source, "is_up", lambda: False)
    await cloud.stop()
    code, found = await parts.ask(f"{SERVICES}?resourceVersion={ahead}")
    assert (code, found["metadata"]["resourceVersion"]) == (200, str(ahead))


async def test_a_version_issued_by_another_hub_is_verified_at_the_cloud(parts: HubWorld, ahead: int) -> None:
    """An earlier process of this hub may have issued it, too."""
    for source in parts.sources:
        source.store.given_version = 0
    code, found = await parts.ask(f"{SERVICES}?resourceVersion={ahead}")
    assert code == 200
    assert int(found["metadata"]["resourceVersion"]) >= ahead


async def test_a_version_ahead_of_the_cloud_is_too_large(parts: HubWorld, ahead: int) -> None:
    async with asyncio.timeout(10):
        code, found = await parts.ask(f"{SERVICES}?resourceVersion={ahead + 1000}")
    assert (code, found["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


async def test_the_source_reads_the_clouds_version_when_a_client_is_ahead_of_events(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """The source would stay behind its client until the next event, and refuse the version after a restart of the
    hub."""

    def asks_no_bookmarks(request: LoggedRequest) -> bool:
        is_watch = matching(verb="watch", resource="services")(request)
        return is_watch and "allowWatchBookmarks" not in request.query

    parts.set_rules(RULES)
    cloud.watches.bookmark_interval = 0.01
    await parts.names(f"{SERVICES}?resourceVersion=0")
    (source,) = [each for each in parts.sources if each.list_watch.type.resource == "services"]
    await cloud.requests.until(asks_no_bookmarks)
    cloud.store.create(node("elsewhere"))
    assert source.store.version < cloud.store.version
    await parts.ask(SERVICES)
    async with asyncio.timeout(10):
        while source.store.version < cloud.store.version:
            await source.store.next_update()


async def test_a_version_that_events_are_about_to_reach_is_not_read_from_the_cloud(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each such watch would cost a list of all names."""
    monkeypatch.setattr(serving, "CATCH_UP", 10)
    parts.set_rules(RULES)
    await parts.names(f"{SERVICES}?resourceVersion=0")
    lists = matching(verb="list", resource="services")
    asked = len(cloud.requests.where(lists))
    cloud.store.create(node("elsewhere"))
    asyncio.get_running_loop().call_later(0.1, cloud.store.create, service("web"))
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion={cloud.store.version}") as watch:
        assert await watch.event() == ("ADDED", "web")
    assert len(cloud.requests.where(lists)) == asked


CLIENTS = 20
ENDS = 300


async def test_no_event_is_lost_when_watches_end(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """The last bookmark once had the view's version instead of the client's, so the events between them were never
    sent."""

    def _names() -> set[str]:
        return {item.key[1] for source in parts.sources for item in source.store}

    def _watchers() -> list[Watcher]:
        views = [viewing.view for source in parts.sources for viewing in source.views.values()]
        return sorted((watcher for view in views for watcher in view.watchers), key=id)

    class Client:
        """The state of client-go's watches: the received names, and the last version."""

        def __init__(self, parts: HubWorld) -> None:
            self.names: set[str] = set()
            self.version = ""
            self.watches = 0
            self._parts = parts

        async def run(self) -> None:
            query = WATCH_LIST
            while True:
                async with self._parts.watch(f"{SERVICES}?{query}") as watch:
                    self.watches += 1
                    with suppress(EOFError):
                        while True:
                            self._take(await watch.next())
                query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self.version}"

        def _take(self, frame: WatchFrame) -> None:
            assert frame.status is None, "a watch that ended in order resumes"
            self.version = json.loads(frame.raw)["metadata"]["resourceVersion"]
            if frame.type != "BOOKMARK":
                self.names.add(name_of(frame))

    choose = random.Random(11)
    clients = [Client(parts) for _ in range(CLIENTS)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    await until(lambda: all(client.watches for client in clients))
    creates = 1000
    ends = set(choose.sample(range(creates), ENDS))
    for number in range(creates):
        cloud.store.create(service(f"at-{number}"))
        if number in ends and (watchers := _watchers()):
            choose.choice(watchers).end()
        if not number % 7:
            await asyncio.sleep(0)
    wanted = {f"at-{number}" for number in range(creates)}
    await until(lambda: _names() == wanted, 30)
    try:
        await until(lambda: all(client.names == wanted for client in clients), 10)
    except TimeoutError:
        lost = {number: sorted(wanted - client.names) for number, client in enumerate(clients)}
        raise AssertionError(
            f"never sent: { {number: names for number, names in lost.items() if names} }"
        ) from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(client.watches for client in clients) >= CLIENTS + ENDS // 2


async def test_no_local_write_is_lost_between_a_list_and_a_watch_of_other_encodings(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """The list was newer than the other source when that applied a local status, so the watch once started after it."""

    async def listed_in_protobuf() -> int:
        context = parts.context(SERVICES, accept=f"{Encoding.PROTOBUF},{Encoding.JSON}")
        async with parts.open(context, SERVICES) as response:
            return codec_for(Encoding.PROTOBUF).decode_list(await response.read_body()).version

    parts.set_rules(RULES)
    cloud.store.create(service("web"))
    cloud.store.create(service("other"))
    async with parts.watch(f"{SERVICES}?{WATCH_LIST}&resourceVersion=0") as before:
        assert {(await before.event())[1] for _ in range(2)} == {"web", "other"}
        cloud.store.create(node("elsewhere"))
        listed = await listed_in_protobuf()
        (lagging,) = [
            each
            for each in parts.sources
            if each.list_watch == ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)
        ]
        web = lagging.store.get(("default", "web"))
        assert web is not None
        assert lagging.store.version < listed
        changed = web.decode()
        changed.fields.child("metadata").set_mapping("labels", {"accepted": "here"})
        lagging.store.amend(changed.encode())
        other = cloud.store.get("services", "other", "default")
        cloud.store.put(other | {"spec": {"ports": [{"port": 81}]}})
        await until(lambda: lagging.store.version > listed)
        async with parts.watch(f"{SERVICES}?watch=true&resourceVersion={listed}") as watch:
            names = {(await watch.event())[1] for _ in range(2)}
    assert names == {"web", "other"}
