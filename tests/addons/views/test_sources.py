"""Sources start when they are asked for, serve all who ask the same, follow the rules, and stop when nobody asks."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from addons.filters.chain import FILTERS
from addons.telemetry import metrics
from addons.views import sources as sources_module
from addons.views.sources import Source, ViewKey
from kube.errors import StatusError
from kube.requests.request_info import ResourceType
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.store.reflector import ListWatch
from kube.store.view import Scope
from kube.wire.encoding import Encoding
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.observed import value_of
from tests.addons.support.samples import cloud_service, endpoint_slice, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Refuse, Silence
from tests.cloud.scriptable.request_log import matching

SERVICES = ListWatch(ResourceType("", "v1", "services"), encoding=Encoding.JSON)
EVERYTHING = Scope("", parse_label_selector(""), parse_field_selector(""))
DISCARD = tuple(each for each in FILTERS if each.name == "discardcloudservice")
KEY = ViewKey("kubelet", "watch", EVERYTHING, False)


class Clock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sources_module, "time", made)
    return made


def names(source: Source) -> list[str]:
    return sorted(item.key[1] for item in source.store)


async def ready(parts: HubParts, list_watch: ListWatch = SERVICES) -> Source:
    source = parts.sources.get("", list_watch)
    await source.ready(2)
    return source


# -- ready ---------------------------------------------------------------------------------------------------------


async def test_a_source_has_what_the_cloud_has(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    source = await ready(parts)
    assert names(source) == ["web"]
    cloud.store.create(service("db"))
    await source.ready(2, cloud.store.version)
    assert names(source) == ["db", "web"]


async def test_a_known_empty_list_is_ready(parts: HubParts) -> None:
    assert names(await ready(parts)) == []


async def test_who_asks_the_same_shares_a_source(parts: HubParts, cloud: ScriptableCloud) -> None:
    one, other = await ready(parts), await ready(parts)
    assert one is other
    assert cloud.requests.count(verb="list", resource="services") == 1


async def test_identities_share_nothing(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.access.tokens["pod"] = User("pod")
    own, pods = parts.sources.get("", SERVICES), parts.sources.get("pod", SERVICES, "Bearer pod")
    assert own is not pods
    await own.ready(2)
    await pods.ready(2)
    assert {each.user for each in cloud.requests.where(matching(resource="services"))} == {
        "pod",
        "system:node:n1",
    }


async def test_without_a_first_copy_the_answer_is_a_503(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.faults.add(Silence(), times=None)
    with pytest.raises(StatusError) as caught:
        await parts.sources.get("", SERVICES).ready(0.05)
    assert (caught.value.code, caught.value.retry_after) == (503, 1)
    cloud.faults.clear()


@pytest.mark.parametrize("code", [403, 404])
async def test_the_clouds_refusal_is_the_answer(parts: HubParts, cloud: ScriptableCloud, code: int) -> None:
    cloud.faults.add(Refuse(code, message="so it is"), times=None, when=matching(resource="services"))
    source = parts.sources.get("", SERVICES)
    for _ in range(2):
        with pytest.raises(StatusError) as caught:
            await source.ready(5)
        assert (caught.value.code, caught.value.message) == (code, "so it is")


async def test_a_refusal_that_is_over_is_forgotten(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.faults.add(Refuse(403), times=1, when=matching(resource="services"))
    source = parts.sources.get("", SERVICES)
    with pytest.raises(StatusError):
        await source.ready(2)
    await source.ready(5)
    assert names(source) == ["web"]


async def test_a_new_token_of_the_same_identity_is_used_when_the_old_one_ends(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    """Projected tokens live an hour, and their pods' watches for longer: the source outlives the token."""
    user = User("system:serviceaccount:kube-system:coredns")
    cloud.access.tokens |= {"old": user, "new": user}
    cloud.store.create(service("web"))
    await parts.sources.get("coredns", SERVICES, "Bearer old").ready(2)
    del cloud.access.tokens["old"]
    await cut_watches(cloud)
    source = parts.sources.get("coredns", SERVICES, "Bearer new")
    cloud.store.create(service("db"))
    await source.ready(5, cloud.store.version)
    assert names(source) == ["db", "web"]


async def cut_watches(cloud: ScriptableCloud) -> None:
    """Every open connection to the cloud ends."""
    await cloud.stop()
    await cloud.start()


# -- views ---------------------------------------------------------------------------------------------------------


async def test_a_component_keeps_its_view(parts: HubParts) -> None:
    source = await ready(parts)
    one = await source.view(KEY, (), 1)
    assert await source.view(KEY, (), 1) is one
    other = await source.view(ViewKey("coredns", "watch", EVERYTHING, False), (), 1)
    assert other is not one
    assert other.projection is one.projection, "without filters they see the same"


async def test_a_rules_edit_changes_a_view_under_its_watch(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    source = await ready(parts)
    view = await source.view(KEY, (), 1)
    watcher = view.watch(None, bookmarks=False)
    parts.sources.rules_changed(lambda *_: DISCARD)
    assert [item.key[1] for item in view] == ["web"]
    (deleted,) = await watcher.frames()
    assert b'"DELETED"' in deleted
    assert b'"lb"' in deleted
    parts.sources.rules_changed(lambda *_: ())
    (added,) = await watcher.frames()
    assert b'"ADDED"' in added
    watcher.end()


async def test_who_asks_by_newer_rules_than_the_views_is_shown_by_the_newer(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    cloud.store.create(cloud_service("lb"))
    source = await ready(parts)
    view = await source.view(KEY, (), 1)
    assert await source.view(KEY, DISCARD, 1) is view
    assert list(view) == []


async def test_filters_are_chosen_for_each_view(parts: HubParts) -> None:
    source = await ready(parts)
    for component in ("a", "b"):
        await source.view(ViewKey(component, "watch", EVERYTHING, False), (), 1)
    parts.sources.rules_changed(lambda key, list_watch: DISCARD if key.component == "a" else ())
    assert {key.component: viewing.filters for key, viewing in source.views.items()} == {
        "a": DISCARD,
        "b": (),
    }


async def test_a_projection_goes_with_its_last_view(parts: HubParts) -> None:
    source = await ready(parts)
    await source.view(KEY, DISCARD, 1)
    assert set(source.projections) == {DISCARD}
    parts.sources.rules_changed(lambda *_: ())
    assert set(source.projections) == {()}


async def test_a_view_whose_inputs_are_not_known_is_waited_for(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    """The old filters stay until the new ones can judge everything."""
    cloud.store.create(endpoint_slice("s", ["n1", "n2"]))
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    topology = tuple(each for each in FILTERS if each.name == "servicetopology")
    source = await ready(
        parts, ListWatch(ResourceType("discovery.k8s.io", "v1", "endpointslices"), encoding=Encoding.JSON)
    )
    with pytest.raises(StatusError) as caught:
        await source.view(KEY, topology, 0.05)
    assert caught.value.code == 503
    waiting = asyncio.create_task(source.view(KEY, topology, 5))
    await asyncio.sleep(0)
    silence.lift()
    view = await waiting
    assert [item.key[1] for item in view] == ["s"]


async def test_watches_end_with_the_clouds_words_when_it_refuses(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    source = await ready(parts)
    watcher = (await source.view(KEY, (), 1)).watch(None, bookmarks=False)
    cloud.faults.add(Refuse(403, message="no longer"), times=None, when=matching(resource="services"))
    await cut_watches(cloud)
    with pytest.raises(StatusError) as caught:
        async with asyncio.timeout(5):
            await watcher.frames()
    assert caught.value.code == 403


async def test_bookmarks_reach_who_asked_for_them(parts: HubParts) -> None:
    source = await ready(parts)
    view = await source.view(KEY, (), 1)
    asked, plain = view.watch(None, bookmarks=True), view.watch(None, bookmarks=False)
    parts.sources._remind()
    (frame,) = await asked.frames()
    assert b"BOOKMARK" in frame
    plain.end()
    assert await plain.frames() == []
    asked.end()


# -- the end -------------------------------------------------------------------------------------------------------


async def test_a_source_that_nobody_uses_stops(parts: HubParts, clock: Clock) -> None:
    source = await ready(parts)
    before = value_of(metrics.SOURCES)
    clock.now += 300
    parts.sources._sweep()
    assert source in parts.sources
    clock.now += 1
    parts.sources._sweep()
    assert source not in parts.sources
    assert value_of(metrics.SOURCES) == before - 1
    assert parts.sources.get("", SERVICES) is not source


async def test_a_source_in_use_stays(parts: HubParts, clock: Clock) -> None:
    source = await ready(parts)
    with source.in_use():
        clock.now += 1000
        parts.sources._sweep()
        assert source in parts.sources
    clock.now += 299
    parts.sources._sweep()
    assert source in parts.sources, "its idle time begins with the end of its use"


async def test_a_view_outlives_its_watch_so_that_the_client_can_resume(parts: HubParts, clock: Clock) -> None:
    source = await ready(parts)
    view = await source.view(KEY, (), 1)
    watcher = view.watch(None, bookmarks=False)
    clock.now += 1000
    parts.sources._sweep()
    watcher.end()
    clock.now += 300
    parts.sources._sweep()
    assert source.views[KEY].view is view
    clock.now += 1
    parts.sources._sweep()
    assert not source.views
    assert not source.projections


async def test_closing_ends_watches_cleanly(parts: HubParts) -> None:
    source = await ready(parts)
    watcher = (await source.view(KEY, (), 1)).watch(None, bookmarks=False)
    parts.sources.close()
    assert await watcher.frames() == []
    assert list(parts.sources) == []


async def test_one_watch_of_the_cloud_for_any_number_of_views(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    source = await ready(parts)
    for number in range(20):
        await source.view(ViewKey(f"c{number}", "watch", EVERYTHING, False), (), 1)
    cloud.store.create(service("web"))
    await source.ready(2, cloud.store.version)
    assert cloud.requests.count(verb="watch", resource="services") == 1


# -- long lists ------------------------------------------------------------------------------------------------------


async def test_a_long_list_is_judged_in_turns_with_others_and_served_when_all_of_it_is(
    parts: HubParts, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.store.projection.EVALUATED_AT_ONCE", 2)
    for number in range(20):
        cloud.store.create(cloud_service(f"s{number}"))
    source = await ready(parts)
    viewing = asyncio.create_task(source.view(KEY, DISCARD, 5))
    seen: list[int] = []
    while not viewing.done():
        await asyncio.sleep(0)
        seen += [projection.evaluations for projection in source.projections.values()]
    view = await viewing
    assert view.projection.is_evaluated
    assert max(after - before for before, after in pairwise([0, *seen])) == 2
    assert seen[-1] == 20
    assert list(view) == []


async def test_a_rule_of_which_not_all_is_judged_yet_reaches_open_watches_without_anybody_who_asks(
    parts: HubParts, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.store.projection.EVALUATED_AT_ONCE", 2)
    for number in range(5):
        cloud.store.create(cloud_service(f"s{number}"))
    source = await ready(parts)
    view = await source.view(KEY, (), 5)
    watcher = view.watch(None, bookmarks=False)
    source.switch(source.views[KEY], DISCARD)
    assert (source.views[KEY].awaited is not None, len(list(view))) == (True, 5)
    assert len(await watcher.frames()) == 5
    assert (source.views[KEY].awaited, list(view)) == (None, [])
    watcher.end()
