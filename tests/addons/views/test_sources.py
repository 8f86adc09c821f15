"""Sources start with their first client, serve all clients of the same list-watch, follow the rules, and stop."""

from __future__ import annotations

import pytest

from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity
from addons.rules.issued_versions import ANY_VERSION, RulesEdit
from addons.rules.table import parse_rules
from addons.telemetry import metrics
from addons.views import source as source_module
from addons.views.open_view import ViewKey
from addons.views.source import Source
from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.store.scope import EVERYTHING
from kube.wire.encoding import Encoding
from tests.addons.support.hub_world import SERVICES_LIST_WATCH, HubWorld
from tests.addons.support.observed import until, value_of
from tests.addons.support.samples import cloud_service, service
from tests.addons.support.source_parts import DISCARD, DISCARDING, KEY, cut_watches, names
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Silence
from tests.cloud.scriptable.request_log import matching
from tests.support.clock import Clock

NODES = ListWatch(ResourceType("", "v1", "nodes"), encoding=Encoding.JSON)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(source_module, "time", made)
    return made


async def test_equal_requests_share_a_source(parts: HubWorld, cloud: ScriptableCloud) -> None:
    one, other = await parts.source(), await parts.source()
    assert one is other
    assert cloud.requests.count(verb="list", resource="services") == 1


async def test_a_source_uses_a_new_token_of_its_identity_when_the_old_one_expires(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """Projected tokens expire after an hour, before their pods' watches end, so a source outlives its token."""
    user = User("system:serviceaccount:kube-system:coredns")
    cloud.access.tokens |= {"old": user, "new": user}
    cloud.store.create(service("web"))
    await parts.sources.get(CloudIdentity("coredns", "Bearer old"), SERVICES_LIST_WATCH).ready(2)
    del cloud.access.tokens["old"]
    await cut_watches(cloud)
    source = parts.sources.get(CloudIdentity("coredns", "Bearer new"), SERVICES_LIST_WATCH)
    cloud.store.create(service("db"))
    await source.ready(5, cloud.store.version)
    assert names(source) == ["db", "web"]


async def test_an_expired_token_ends_no_watch_of_another_pod(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """Both pods have one service account, and the deleted pod had sent the last request."""
    user = User("system:serviceaccount:kube-system:coredns")
    cloud.access.tokens |= {"alive": user, "dying": user}
    cloud.store.create(service("web"))
    for token in ("alive", "dying"):
        source = parts.sources.get(CloudIdentity("coredns", f"Bearer {token}"), SERVICES_LIST_WATCH)
        await source.ready(2)
    watcher = (await source.view(KEY, 1, "coredns")).watch(None, bookmarks=False)
    del cloud.access.tokens["dying"]
    await cut_watches(cloud)
    cloud.store.create(service("db"))
    (added,) = await watcher.frames()
    assert b'"ADDED"' in added
    watcher.end()


# -- views ---------------------------------------------------------------------------------------------------------


async def test_an_edit_of_the_rules_changes_a_view_during_its_watch(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    source = await parts.source()
    view = await source.view(KEY, 1)
    watcher = view.watch(None, bookmarks=False)
    parts.set_rules(DISCARDING)
    assert [item.key[1] for item in view] == ["web"]
    (deleted,) = await watcher.frames()
    assert b'"DELETED"' in deleted
    assert b'"lb"' in deleted
    parts.set_rules({})
    (added,) = await watcher.frames()
    assert b'"ADDED"' in added
    watcher.end()


async def test_a_request_from_before_an_edit_of_the_rules_does_not_undo_the_edit(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """The request was routed by the old rules, and gets its view when the new ones are in force."""
    cloud.store.create(cloud_service("lb"))
    source = await parts.source()
    watched = await source.view(KEY, 1)
    watcher = watched.watch(None, bookmarks=False)
    late = source.view(KEY, 1)
    parts.set_rules(DISCARDING)
    assert await late is watched
    assert list(watched) == []
    assert [b'"DELETED"' in frame for frame in await watcher.frames()] == [True]
    watcher.end()


async def test_filters_are_chosen_for_each_view(parts: HubWorld) -> None:
    source = await parts.source()
    for component in ("a", "b"):
        await source.view(ViewKey(component, "watch", EVERYTHING), 1)
    parts.set_rules({"filter_discardcloudservice": "a/services"})
    assert {key.component: opened.filters for key, opened in source.views.items()} == {"a": DISCARD, "b": ()}


async def test_bookmarks_are_sent_to_watches_that_requested_them(parts: HubWorld) -> None:
    source = await parts.source()
    view = await source.view(KEY, 1)
    asked, plain = view.watch(None, bookmarks=True), view.watch(None, bookmarks=False)
    parts.sources._remind()
    (frame,) = await asked.frames()
    assert b"BOOKMARK" in frame
    plain.end()
    assert await plain.frames() == []
    asked.end()


# -- the end of a source -------------------------------------------------------------------------------------------


async def test_an_unused_source_stops(parts: HubWorld, clock: Clock) -> None:
    source = await parts.source()
    before = value_of(metrics.SOURCES)
    clock.now += 300
    parts.sources._sweep()
    assert source in parts.sources
    clock.now += 1
    parts.sources._sweep()
    assert source not in parts.sources
    assert value_of(metrics.SOURCES) == before - 1
    assert parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH) is not source


async def test_a_source_stays_open_until_a_restored_cloud_has_passed_its_versions(
    parts: HubWorld, cloud: ScriptableCloud, clock: Clock
) -> None:
    """A new source would start at the restored cloud's version, and could not detect a client of the former history."""
    cloud.store.create(service("web"))
    source = await parts.source()
    source.store.given_version = cloud.store.version + 1
    source.reflector.disprove()
    await until(lambda: source.reflector.lists == 2 and source.reflector.state is State.WATCHING)
    for past in (0, 1, 2):
        source.store.advance(cloud.store.version + past)
        clock.now += 301
        parts.sources._sweep()
        assert (source in parts.sources) == (past < 2)


async def test_no_source_starts_at_a_version_from_before_a_restore(
    parts: HubWorld, cloud: ScriptableCloud, clock: Clock
) -> None:
    """The restored cloud has other objects at that version, and the source that issued it may be closed."""
    source = await parts.source()
    version = source.store.version
    clock.now += 301
    parts.sources._sweep()
    cloud.store.create(service("late"))
    other = await parts.source(NODES)
    other.reflector.disprove()
    await until(lambda: other.reflector.lists == 2)
    made = parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH, begin_at=version)
    await made.ready(1)
    assert (
        parts.sources.filtering.issued_under_other_rules(SERVICES_LIST_WATCH.type),
        made.store.version > version,
    ) == (version, True)


async def test_an_edit_includes_versions_issued_by_a_stopped_source(parts: HubWorld, clock: Clock) -> None:
    parts.set_rules(DISCARDING)
    source = await parts.source()
    await source.view(KEY, 1)
    version = source.store.newest_given
    clock.now += 301
    parts.sources._sweep()
    assert source not in parts.sources
    parts.rules = parse_rules({})
    parts.sources.rules_changed()
    assert parts.edit is not None
    assert parts.edit.versions == {"services": version}


async def test_a_source_in_use_is_not_stopped(parts: HubWorld, clock: Clock) -> None:
    source = await parts.source()
    with source.in_use():
        clock.now += 1000
        parts.sources._sweep()
        assert source in parts.sources
    clock.now += 299
    parts.sources._sweep()
    assert source in parts.sources, "its idle time begins with the end of its use"


async def test_a_view_outlives_its_watch_for_a_resumption(parts: HubWorld, clock: Clock) -> None:
    source = await parts.source()
    view = await source.view(KEY, 1)
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


async def test_closing_ends_watches_cleanly(parts: HubWorld) -> None:
    source = await parts.source()
    watcher = (await source.view(KEY, 1)).watch(None, bookmarks=False)
    parts.sources.close()
    assert await watcher.frames() == []
    assert list(parts.sources) == []


async def test_a_resource_without_sources_has_no_issued_version(parts: HubWorld) -> None:
    """A view may ask for the issued versions of its resource while the resource's last source closes."""
    source = await parts.source()
    parts.sources.close()
    assert source.given_by_others() == 0


async def test_the_cloud_is_asked_for_its_version_if_clients_may_be_ahead_of_an_accepted_write(
    cloud: ScriptableCloud,
) -> None:
    """They have lists of an earlier process, made before or after the write."""
    cloud.store.create(service("web"))
    async with HubWorld(cloud, edit=RulesEdit("")) as parts:
        parts.sources.rules_changed()
        source = parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH)
        # It begins as if from a copy, without a list that says the cloud's version.
        reached, source.reflector.reached = source.reflector.reached, lambda _version: None
        await source.ready(5)
        source.reflector.reached = reached
        view = await source.view(KEY, 1)
        assert (view.given_earlier(), view.newest_earlier) == (ANY_VERSION, 0)
        source.store.apply_response(("default", "web"), None)
        assert view.newest_earlier == ANY_VERSION
        assert await source.view(KEY, 1) is view
        await until(lambda: view.newest_earlier == cloud.store.version)


async def test_a_permanent_source_is_never_idle(parts: HubWorld) -> None:
    assert parts.sources.permanent(SERVICES_LIST_WATCH).users == 1


async def test_a_restore_detected_by_one_source_makes_all_verify_their_history(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """Sources of another version space, such as an aggregated API with its own etcd, are not listed again."""

    async def watches(source: Source, count: int) -> None:
        await until(lambda: source.reflector.watches == count)

    sources = [await parts.source(each) for each in (SERVICES_LIST_WATCH, NODES)]
    before = sources[1].reflector.watches
    sources[0].reflector.disprove()
    await until(lambda: sources[0].reflector.lists == 2)
    await watches(sources[1], before + 1)
    assert [each.reflector.lists for each in sources] == [2, 1]


async def test_an_unverified_source_is_not_served_after_the_cluster_was_replaced(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of a replaced cluster were once served for a minute, and throughout an outage that started within it."""
    found, other = [await parts.source(each) for each in (SERVICES_LIST_WATCH, NODES)]
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="nodes"))
    found.reflector.disprove()
    for is_up in (False, True):
        monkeypatch.setattr(other, "is_up", lambda is_up=is_up: is_up)
        with pytest.raises(StatusError, match="nodes"):
            await other.ready(0.05)
    silence.lift()
    await other.ready(5)
    assert other.reflector.lists == 1


async def test_bounds_of_former_rules_are_capped_at_the_version_of_a_restored_cloud(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """A restored cloud has a lower version; relayed watches were once 410 for a long time."""
    parts.set_rules(DISCARDING)
    source = await parts.source()
    await source.view(KEY, 1)
    source.store.given_version = cloud.store.version + 10
    parts.set_rules({})
    assert parts.sources._given.of_other_rules("services") == source.store.given_version
    source.reflector.disprove()
    await until(lambda: source.reflector.lists == 2 and source.reflector.state is State.WATCHING)
    assert parts.sources._given.of_other_rules("services") == source.store.version
