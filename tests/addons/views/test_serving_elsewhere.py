"""Clients whose version was not issued by the view in which they resume must not retain hidden objects. Each test has
two clients of one component, because the view's history starts with the response to the other one."""

from __future__ import annotations

import asyncio
import json

import pytest

from addons.requests.route_decision import RouteKind
from addons.rules.issued_versions import RulesEdit
from addons.views.bounds import quotas
from kube.errors import StatusError
from tests.addons.support.hub_world import HubWorld, Watching, name_of
from tests.addons.support.samples import SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud

PLAIN = {"cache_agents": "cached"}
FILTERED = {**PLAIN, "filter_discardcloudservice": "cached/services"}
WATCH = f"{SERVICES}?watch=true&allowWatchBookmarks=true&resourceVersion="
ZERO = f"{SERVICES}?resourceVersion=0"


class Client:
    """A client that lists and watches like client-go: after a 410 it lists without a version."""

    def __init__(self, parts: HubWorld) -> None:
        self.parts = parts
        self.names: set[str] = set()
        self.version = ""
        self.refusals = 0

    async def list(self, target: str = SERVICES) -> None:
        route = self.parts.context(target).route
        if route is not None and route.kind is RouteKind.RELAY:
            store = self.parts.cloud.store
            self.version = str(store.version)
            self.names = {item["metadata"]["name"] for item in store.list("services", "default")}
            return
        code, found = await self.parts.ask(target)
        assert code == 200, found
        self.version = found["metadata"]["resourceVersion"]
        self.names = {item["metadata"]["name"] for item in found["items"]}

    async def watch(self, *wanted: str) -> None:
        """Watch, and list where the watch is refused, until the names equal the expected ones."""
        async with asyncio.timeout(20):
            while self.names != set(wanted) or not self.version:
                if not self.version:
                    await self.list()
                await self._watch(set(wanted))

    async def _watch(self, wanted: set[str]) -> None:
        async with self.parts.watch(WATCH + self.version) as watch:
            while self.names != wanted:
                frame = await watch.next(20)
                if frame.status is not None:
                    assert frame.status.code == 410
                    self.version, self.refusals = "", self.refusals + 1
                    return
                self.version = json.loads(frame.raw)["metadata"]["resourceVersion"]
                if frame.type == "DELETED":
                    self.names.discard(name_of(frame))
                elif frame.type != "BOOKMARK":
                    self.names.add(name_of(frame))


@pytest.fixture
async def relayed(parts: HubWorld, web: None, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return a client whose list was relayed because the node's quota of views was used up."""
    parts.set_rules(PLAIN)
    monkeypatch.setattr(quotas, "MAX_HUB_VIEWS", 0)
    client = Client(parts)
    await client.list(ZERO)
    assert client.names == {"web", "lb"}
    monkeypatch.undo()
    return client


async def test_a_version_from_a_relayed_list_is_refused_by_a_filtered_view(
    parts: HubWorld, relayed: Client
) -> None:
    """The view once accepted such a version, and the client retained an object that the filter hides."""
    parts.set_rules(FILTERED)
    await Client(parts).list()
    await relayed.watch("web")
    assert relayed.names == {"web"}


async def test_a_relayed_version_at_or_after_an_edit_is_refused_by_a_filtered_view(
    parts: HubWorld, cloud: ScriptableCloud, relayed: Client
) -> None:
    """Until the edit reaches the hub, relayed lists carry the edit's version or a later one."""
    cloud.store.create(cloud_service("late"))
    relayed.names.add("late")
    relayed.version = str(cloud.store.version + 1)  # the version of the ConfigMap that is written next
    parts.set_rules(FILTERED)
    assert relayed.version == str(cloud.store.version)
    await Client(parts).list()
    await relayed.watch("web")


async def test_an_object_deleted_since_is_reported_as_deleted(
    parts: HubWorld, cloud: ScriptableCloud, relayed: Client
) -> None:
    """The view hid the object until its deletion, so its history has no event of it."""
    parts.set_rules(FILTERED)
    await Client(parts).list()
    cloud.store.delete("services", "lb", "default")
    cloud.store.create(service("after"))
    (source,) = [each for each in parts.sources if each.views]
    await source.ready(20, cloud.store.version)
    await relayed.watch("web", "after")
    assert relayed.refusals == 0


async def test_a_listed_version_can_be_watched_where_only_watches_are_filtered(
    parts: HubWorld, cloud: ScriptableCloud, web: None
) -> None:
    """The view of the watches had served no list, and once refused each version for ever."""
    watches_only = {**PLAIN, "filter_discardcloudservice": "cached/services#watch"}
    parts.set_rules(watches_only)
    for target in (ZERO, SERVICES):
        client = Client(parts)
        await client.list(target)
        assert client.names == {"web", "lb"}
        await client.watch("web")
        assert client.refusals == 0
        cloud.store.create(service(f"of-{len(target)}"))
        await client.watch(*(item for item in client.names), f"of-{len(target)}")
        cloud.store.delete("services", f"of-{len(target)}", "default")


async def test_a_recreated_view_corrects_clients_of_former_inputs(parts: HubWorld, web: None) -> None:
    """A node's label may change while the view has no client, without a new version."""
    parts.set_rules(FILTERED)
    before, other = Client(parts), Client(parts)
    await before.list(ZERO)
    before.names.add("lb")  # as if a former input had shown the object
    (source,) = [each for each in parts.sources if each.views]
    for key in list(source.views):
        source.views.pop(key).view.close()
    await other.list(ZERO)
    assert other.version == before.version
    await before.watch("web")
    assert before.refusals == 0


@pytest.mark.parametrize("edit", [RulesEdit("other", {"services": 5}), None])
async def test_the_first_list_of_a_quiet_cluster_can_be_watched_from(
    cloud: ScriptableCloud, web: None, edit: RulesEdit | None
) -> None:
    """The last write is the rules' own, and other rules may have preceded it. A 410 would be repeated for ever."""
    async with HubWorld(cloud, edit=edit) as parts:
        for rules in (FILTERED, PLAIN, FILTERED):
            parts.set_rules(rules)
            for target in (SERVICES, ZERO):
                client = Client(parts)
                await client.list(target)
                async with parts.watch(WATCH + client.version) as watch:
                    await _not_refused(watch)


async def _not_refused(watch: Watching) -> None:
    """Return once the watch is quiet; StatusError if it ends with an error."""
    try:
        while True:
            frame = await watch.next(0.1)
            if isinstance(frame.status, StatusError):
                raise frame.status
    except TimeoutError:
        return


async def test_a_list_relayed_on_a_quiet_cluster_can_be_watched_from(
    cloud: ScriptableCloud, web: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub once took the version of the ConfigMap's own store for one issued to clients."""
    async with HubWorld(cloud) as parts:
        for rules in (PLAIN, FILTERED, PLAIN, {**PLAIN, "filter_discardcloudservice": "other/services"}):
            monkeypatch.undo()
            parts.set_rules(rules)
            monkeypatch.setattr(quotas, "MAX_HUB_VIEWS", 0)
            if rules is FILTERED:
                continue
            client = Client(parts)
            await client.list()
            assert client.names == {"web", "lb"}
            async with parts.watch(WATCH + client.version) as watch:
                await _not_refused(watch)
