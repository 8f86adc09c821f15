"""A source: one list and watch for all permitted clients, its views, its end, and its log lines."""

from __future__ import annotations

import asyncio
import logging
import weakref
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from addons.filters.chain import FILTERS
from addons.filters.plugins import in_order, plugin_of
from addons.offline.copies import DiskCopy
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.rules.table import parse_rules
from addons.telemetry import metrics
from addons.telemetry.log import Pace
from addons.views import source_log
from addons.views.observed_events import observed_events
from addons.views.open_view import ViewKey
from addons.views.source import Source
from addons.views.source_log import GIVEN, RBAC, RBAC_OF_NODES, Failures, log_failure, remedy
from kube.errors import StatusError, forbidden, unavailable
from kube.http.client import TooLarge, Unreachable
from kube.reflector.list_pages import Malformed
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Failure
from kube.requests.request_info import ResourceType
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.store.scope import EVERYTHING, Scope
from kube.store.store import Item
from kube.wire.encoding import Encoding
from tests.addons.support.filter_plugins import Hiding
from tests.addons.support.hub_world import SERVICES_LIST_WATCH, HubWorld
from tests.addons.support.observed import until, value_of
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import cloud_service, endpoint_slice, service
from tests.addons.support.source_parts import DISCARD, DISCARDING, KEY, names
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse, Rule, Silence
from tests.cloud.scriptable.request_log import matching

SLICES = ListWatch(ResourceType("discovery.k8s.io", "v1", "endpointslices"), encoding=Encoding.JSON)


async def lacking_inputs(parts: HubWorld, cloud: ScriptableCloud) -> tuple[Source, Rule]:
    """Return a source with one slice whose Service is not available from the cloud until the fault ends."""
    cloud.store.create(endpoint_slice("s", ["n1", "n2"]))
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    parts.set_rules({"filter_servicetopology": "agent/endpointslices"})
    return await parts.source(SLICES), silence


async def test_a_request_without_a_first_copy_is_503(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.faults.add(Silence(), times=None)
    with pytest.raises(StatusError) as caught:
        await parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH).ready(0.05)
    assert (caught.value.code, caught.value.retry_after) == (503, 1)
    cloud.faults.clear()


@pytest.mark.parametrize("code", [403, 404])
async def test_the_clouds_refusal_is_the_response(parts: HubWorld, cloud: ScriptableCloud, code: int) -> None:
    cloud.faults.add(Refuse(code, message="so it is"), times=None, when=matching(resource="services"))
    source = parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH)
    for _ in range(2):
        with pytest.raises(StatusError) as caught:
            await source.ready(5)
        assert (caught.value.code, caught.value.message) == (code, "so it is")


async def test_a_refusal_ends_once_the_cloud_permits_the_list(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    cloud.faults.add(Refuse(403), times=1, when=matching(resource="services"))
    source = parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH)
    with pytest.raises(StatusError):
        await source.ready(2)
    await source.ready(5)
    assert names(source) == ["web"]


async def test_a_component_gets_the_same_view_again(parts: HubWorld) -> None:
    source = await parts.source()
    one = await source.view(KEY, 1)
    assert await source.view(KEY, 1) is one
    other = await source.view(ViewKey("coredns", "watch", EVERYTHING), 1)
    assert other is not one
    assert other.projection is one.projection, "without filters they see the same"


async def test_a_projection_ends_with_its_last_view(parts: HubWorld) -> None:
    source = await parts.source()
    parts.set_rules(DISCARDING)
    await source.view(KEY, 1)
    assert set(source.projections) == {DISCARD}
    parts.set_rules({})
    assert set(source.projections) == {()}


async def test_a_view_waits_for_its_unknown_inputs(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """The previous filters stay in force until the new ones have verdicts on all objects."""
    source, silence = await lacking_inputs(parts, cloud)
    with refuses(503):
        await source.view(KEY, 0.05)
    waiting = asyncio.create_task(source.view(KEY, 5))
    await asyncio.sleep(0)
    silence.lift()
    view = await waiting
    assert [item.key[1] for item in view] == ["s"]


async def test_a_view_is_ready_when_the_last_object_that_lacks_an_input_is_deleted(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    source, silence = await lacking_inputs(parts, cloud)
    waiting = asyncio.create_task(source.view(KEY, 5))
    await asyncio.sleep(0)
    cloud.store.delete("endpointslices", "s", "default")
    assert list(await waiting) == []
    silence.lift()


async def test_a_closed_source_refuses_waiters_and_leaves_no_task(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """The byte quota may close a source while a request waits for filter inputs."""
    source, _ = await lacking_inputs(parts, cloud)
    waiting = asyncio.create_task(source.view(KEY, 30))
    await asyncio.sleep(0)
    parts.sources._drop(source)
    with pytest.raises(StatusError, match="evicted") as caught:
        await waiting
    assert (caught.value.code, caught.value.retry_after) == (503, 1)
    assert not [
        task for task in asyncio.all_tasks() if "filters of" in task.get_name() and not task.cancelling()
    ]


@pytest.mark.usefixtures("uncollected", "copied")
async def test_a_closed_source_leaves_no_objects(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """A source closed for its size would otherwise stay in memory with all its objects until a full garbage
    collection."""
    parts.sources.noted = observed_events(lambda _: None)
    cloud.store.create(service("web"))
    source = await parts.source()
    view = await source.view(KEY, 1)
    cloud.store.delete("services", "web", "default")
    await source.ready(2, cloud.store.version)
    assert isinstance(source.copy, DiskCopy)
    watched = [source, source.store, source.reflector, source.copy, source.copy.table, view, *source._tasks]
    left = [weakref.ref(each) for each in watched]
    parts.sources._drop(source)
    del source, view, watched
    await until(lambda: all(each() is None for each in left), 20)


@pytest.mark.usefixtures("uncollected")
async def test_a_refused_source_leaves_no_objects(parts: HubWorld, cloud: ScriptableCloud) -> None:
    cloud.faults.add(Refuse(403), times=None, when=matching(resource="services"))
    source = parts.sources.get(HUB_IDENTITY, SERVICES_LIST_WATCH)
    for _ in range(2):
        with pytest.raises(StatusError):
            await source.ready(5)
    left = [weakref.ref(each) for each in (source, source.reflector)]
    parts.sources._drop(source)
    del source
    await until(lambda: all(each() is None for each in left), 20)


async def test_a_request_continues_with_the_objects_of_a_source_that_closes(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    source = await parts.source()
    with source.in_use():
        parts.sources._drop(source)
        assert len(source.store) == 1
    assert len(source.store) == 0


async def test_any_number_of_views_share_one_watch_at_the_cloud(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    source = await parts.source()
    for number in range(20):
        await source.view(ViewKey(f"c{number}", "watch", EVERYTHING), 1)
    cloud.store.create(service("web"))
    await source.ready(2, cloud.store.version)
    assert cloud.requests.count(verb="watch", resource="services") == 1


# -- long lists ----------------------------------------------------------------------------------------------------


async def test_a_slow_evaluation_reaches_open_watches_without_an_event(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.store.projection.EVALUATION_BATCH", 2)
    for number in range(5):
        cloud.store.create(cloud_service(f"s{number}"))
    source = await parts.source()
    view = await source.view(KEY, 5)
    watcher = view.watch(None, bookmarks=False)
    parts.set_rules(DISCARDING)
    assert (source.views[KEY].next is not None, len(list(view))) == (True, 5)
    assert len(await watcher.frames()) == 5
    assert (source.views[KEY].next, list(view)) == (None, [])
    watcher.end()


async def test_a_new_rule_matches_selectors_in_time_slices(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kube.store.view.MATCH_BATCH", 2)
    for number in range(20):
        cloud.store.create(cloud_service(f"s{number}"))
    source = await parts.source()
    selected = KEY._replace(scope=Scope("", parse_label_selector("a!=b"), parse_field_selector("")))
    watcher = (await source.view(selected, 5)).watch(None, bookmarks=False)
    matched = 0

    def matches(_scope: Scope, _item: Item) -> bool:
        nonlocal matched
        matched += 1
        return True

    monkeypatch.setattr(Scope, "matches", matches)
    parts.set_rules(DISCARDING)
    seen = [matched]
    while source.views[selected].next is not None:
        await asyncio.sleep(0)
        seen.append(matched)
    # The last batch is evaluated once more to write the events.
    assert max(after - before for before, after in pairwise(seen[:-1])) == 2
    assert seen[-2] >= 18
    assert len(await watcher.frames()) == 20
    watcher.end()


async def test_a_view_is_evaluated_while_another_one_waits_for_an_input(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object of the source changes meanwhile, so no event continues the evaluation."""
    monkeypatch.setattr("kube.store.projection.EVALUATION_BATCH", 2)
    for number in range(5):
        cloud.store.create(endpoint_slice(f"s{number}", ["n1"]))
    cloud.faults.add(Silence(), times=None, when=matching(resource="services"))
    source = await parts.source(SLICES)
    parts.set_rules({"filter_forwardkubesvctraffic": "agent/endpointslices"})
    with pytest.raises(StatusError, match="an input of the filters is not known yet"):
        await source.view(KEY._replace(component="kube-proxy"), 0.2)
    view = await source.view(KEY, 20)
    assert (view.projection.is_evaluated, len(list(view))) == (True, 5)


async def test_a_protobuf_view_is_closed_if_a_filter_needs_json(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    both = [await parts.source(ListWatch(SERVICES_LIST_WATCH.type, encoding=each)) for each in Encoding]
    views = [await source.view(KEY, 5) for source in both]
    watchers = [view.watch(None, bookmarks=False) for view in views]
    careful = in_order(FILTERS, [plugin_of(Hiding(components=frozenset({"agent"}), protobuf=False), "")])
    parts.rules = parse_rules({}, filters=careful)
    parts.sources.rules_changed()
    ended = {source.list_watch.encoding: each.ended for source, each in zip(both, watchers, strict=True)}
    assert ended == {Encoding.JSON: False, Encoding.PROTOBUF: True}
    with pytest.raises(StatusError, match="the rules have changed under this request") as caught:
        await both[[*Encoding].index(Encoding.PROTOBUF)].view(KEY, 5)
    assert caught.value.code == 503


ROOT = Path(__file__).parents[3]
NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def fresh_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(source_log, "_pace", Pace())


@pytest.mark.parametrize(
    ("error", "level", "expected"),
    [
        (
            forbidden('nodes is forbidden: User "system:node:a"'),
            "WARNING",
            f'{NODES}: the hub lacks a right: apply {RBAC_OF_NODES} (nodes is forbidden: User "system:node:a")',
        ),
        (unavailable("etcd is slow"), "INFO", f"{NODES}: etcd is slow"),
    ],
)
def test_a_failure_is_logged_once_with_the_remedy(
    caplog: pytest.LogCaptureFixture, error: Exception, level: str, expected: str
) -> None:
    for _ in range(5):
        log_failure(NODES, "", error)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [(level, expected)]
    log_failure("/api/v1/services", "", error)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("path", "user", "message"),
    [
        ("/api/v1/services", "system:node:a", f"apply {RBAC}"),
        ("/apis/networking.k8s.io/v1/servicecidrs", "system:node:a", f"apply {RBAC}"),
        ("/apis/edgehub.io/v1/nodelabels", "system:node:a", f"apply {RBAC_OF_NODES}"),
        ("/api/v1/namespaces/kube-system/configmaps", "system:node:a", f"apply {RBAC}"),
        ("/api/v1/namespaces/shop/configmaps", "system:node:a", "no manifest of the hub's gives it"),
        ("/api/v1/services", "alice", f"{RBAC} gives it to nodes (the group system:nodes) alone"),
        ("/apis/example.com/v1/things", "system:node:a", "no manifest of the hub's gives it"),
    ],
)
def test_a_manifest_is_named_only_if_it_grants_the_permission(path: str, user: str, message: str) -> None:
    assert remedy(path, f'forbidden: User "{user}" cannot list it').startswith(message)


@pytest.mark.parametrize("manifest", [RBAC, RBAC_OF_NODES])
def test_the_known_permissions_equal_those_in_the_manifests(manifest: str) -> None:
    documents = [each for each in yaml.safe_load_all((ROOT / manifest).read_text()) if each]
    rules = [rule for each in documents if each["kind"] == "ClusterRole" for rule in each["rules"]]
    given = {
        f"{resource}.{group}" if group else resource
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert given == {resource for resource, file in GIVEN.items() if file == manifest}


def test_an_outage_is_not_logged_for_each_source(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(NODES, "", Unreachable("reset"))
    assert not caplog.records


def test_a_refusal_of_a_caller_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(NODES, "some-token's-digest", forbidden("no"))
    assert not caplog.records


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable("reset"), "broken off"),
        (TooLarge("a list"), "too large"),
        (Malformed("a frame"), "malformed"),
        (forbidden("no"), "error"),
    ],
)
def test_each_failure_is_counted_once(error: Failure, reason: str) -> None:
    counted = metrics.SOURCE_ERRORS.labels("services", reason)
    before, failures = value_of(counted), Failures(ListWatch(ResourceType("", "v1", "services")), "")
    for noted in (error, error, None, error):
        failures.record(noted, is_up=True)
    assert value_of(counted) == before + 1


def test_the_manifest_named_in_the_log_exists() -> None:
    assert (ROOT / RBAC).is_file()
