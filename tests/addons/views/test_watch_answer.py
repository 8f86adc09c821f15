"""The response to a watch of a view, and the observation of its events."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Iterable
from types import SimpleNamespace
from typing import cast

import pytest

from addons.filters.verdict import changed, dropped, kept
from addons.requests.answers import ClientStream
from addons.telemetry import metrics
from addons.telemetry.observation import Observation, Tally
from addons.views import reviews, watch_answer
from addons.views.observed_events import observed_events
from addons.views.tally import _tallies, tallies_of_one
from kube.store.projection import Why
from kube.store.watcher import Watcher
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.observed import until, value_of
from tests.addons.support.samples import POD, SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Refuse, Silence
from tests.cloud.scriptable.request_log import matching
from tests.support.background import beside

ZERO = f"{SERVICES}?resourceVersion=0"


@pytest.mark.usefixtures("web")
async def test_a_watchlist_ends_its_initial_events_with_a_bookmark(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    watch_list = (
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    )
    async with parts.watch(f"{SERVICES}?{watch_list}") as watch:
        assert sorted([await watch.event(), await watch.event()]) == [("ADDED", "lb"), ("ADDED", "web")]
        frame = await watch.next()
        metadata = json.loads(frame.raw)["metadata"]
        assert frame.type == "BOOKMARK"
        assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert metadata["resourceVersion"] == str(cloud.store.version)


@pytest.mark.usefixtures("web")
async def test_a_table_watch_is_filtered(parts: HubWorld, cloud: ScriptableCloud) -> None:
    parts.set_rules({"filter_discardcloudservice": "chosen/services"})
    target = f"{SERVICES}?watch=true&resourceVersion=0"
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    async with parts.watch(target, "chosen", accept=table) as watch:
        cloud.store.create(service("new"))
        tables = [json.loads((await watch.next()).raw) for _ in range(2)]
    columns = [bool(each["columnDefinitions"]) for each in tables]
    assert columns == [True, False], "as from kube-apiserver, to save bytes"
    assert [each["rows"][0]["cells"][0] for each in tables] == ["web", "new"]
    asked = cloud.requests.where(matching(verb="watch", resource="services"))
    protobuf = "application/vnd.kubernetes.protobuf"
    assert {each.accept.partition(",")[0] for each in asked} == {protobuf}, "kube-proxy's copy serves it"


async def test_a_quiet_watch_frees_its_last_events() -> None:
    """Otherwise the bytes of a burst would stay in memory for each of hundreds of watches until the next event."""

    class Batch(list[bytes]):
        """A list of events that allows weak references."""

    batches = [Batch([b"event"])]
    gone = weakref.ref(batches[0])
    written: list[bytes] = []

    async def frames() -> list[bytes]:
        return batches.pop() if batches else await asyncio.Future()

    async def write_all(pieces: Iterable[bytes]) -> None:
        written.extend(pieces)

    watcher, stream = SimpleNamespace(frames=frames), SimpleNamespace(write_all=write_all)
    async with beside(watch_answer._follow(cast(Watcher, watcher), cast(ClientStream, stream))):
        await until(lambda: written)
        assert gone() is None


@pytest.mark.usefixtures("web")
async def test_headers_are_sent_before_the_first_event(parts: HubWorld, cloud: ScriptableCloud) -> None:
    await parts.names(ZERO)
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion={cloud.store.version}") as watch:
        assert watch.response.headers["Cache-Control"] == "no-cache, private"


@pytest.mark.usefixtures("web")
async def test_a_version_that_is_too_old_is_one_error_event(parts: HubWorld, cloud: ScriptableCloud) -> None:
    await parts.names(ZERO)
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=1&allowWatchBookmarks=true") as watch:
        (frame,) = await watch.until_end()
        assert frame.status is not None
        assert (frame.type, frame.status.code) == ("ERROR", 410)


@pytest.mark.usefixtures("web")
async def test_a_watch_with_a_negative_timeout_is_empty(parts: HubWorld) -> None:
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0&timeoutSeconds=-1") as watch:
        assert await watch.until_end() == []


@pytest.mark.usefixtures("web")
async def test_a_watch_ends_at_its_timeout_with_a_last_bookmark(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    query = "watch=true&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true"
    async with parts.watch(f"{SERVICES}?{query}") as watch:
        found = await watch.until_end()
    assert [frame.type for frame in found] == ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]
    assert json.loads(found[-1].raw)["metadata"]["resourceVersion"] == str(cloud.store.version)


@pytest.mark.usefixtures("web")
async def test_an_error_is_the_last_event_of_a_watch(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """kube-apiserver sends nothing after it; a later event would tell the client that its failed watch continues."""
    query = "watch=true&resourceVersion=0&allowWatchBookmarks=true"
    async with parts.watch(f"{SERVICES}?{query}") as watch:
        assert [frame.type for frame in [await watch.next() for _ in range(3)]] == [
            "ADDED",
            "ADDED",
            "BOOKMARK",
        ]
        cloud.faults.add(Refuse(403), times=None, when=matching(resource="services"))
        await cloud.stop()
        await cloud.start()
        found = await watch.until_end()
    assert found[0].status is not None
    assert [(frame.type, frame.status and frame.status.code) for frame in found] == [("ERROR", 403)]


@pytest.mark.usefixtures("web")
async def test_open_watches_are_counted(parts: HubWorld) -> None:
    gauge = metrics.WATCHERS.labels("services")
    before = value_of(gauge)
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0") as watch:
        await watch.event()
        assert value_of(gauge) == before + 1
    await until(lambda: value_of(gauge) == before)


# -- outages -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("web")
async def test_a_view_serves_lists_and_watches_offline(parts: HubWorld, cloud: ScriptableCloud) -> None:
    await parts.names(ZERO)
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0") as watch:
        await watch.event()
        await watch.event()
        await cloud.stop()
        assert await parts.names(ZERO) == ["lb", "web"]
        with pytest.raises(TimeoutError):
            await watch.next(0.1)
        await cloud.start()
        cloud.store.create(service("new"))
        assert await watch.event() == ("ADDED", "new")


async def test_a_list_that_was_never_cached_is_503_offline(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.serving, "_wait", 0.05)
    cloud.faults.add(Silence(), times=None)
    assert (await parts.ask(ZERO))[0] == 503
    cloud.faults.clear()


@pytest.mark.parametrize("target", [SERVICES, "/api/v1/namespaces/default/secrets"])
@pytest.mark.parametrize(("why", "code"), [("right", 403), ("account", 401)])
async def test_a_watch_ends_when_its_clients_permission_is_revoked(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch, target: str, why: str, code: int
) -> None:
    monkeypatch.setattr(watch_answer, "CHECK_INTERVAL", (0.01, 0.02))
    monkeypatch.setattr(reviews, "PERMISSION_TTL", 0.0)
    cloud.access.tokens["pod"] = User("pod")
    async with parts.watch(f"{target}?watch=true&resourceVersion=0", caller=POD) as watch:
        if why == "right":
            cloud.access.allowed["pod"] = lambda _: False
        else:
            del cloud.access.tokens["pod"]
        last = await watch.next()
        assert last.status is not None
        assert last.status.code == code
        with pytest.raises(EOFError):
            await watch.next()


async def test_a_list_is_refused_as_soon_as_its_permission_is_revoked(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even if the hub has a copy for this identity that the cloud still updates."""
    monkeypatch.setattr(reviews, "PERMISSION_TTL", 0.0)
    secrets = "/api/v1/namespaces/default/secrets?resourceVersion=0"
    cloud.access.tokens["pod"] = User("pod")
    assert (await parts.ask(secrets, caller=POD))[0] == 200
    cloud.access.allowed["pod"] = lambda info: info.verb == "watch"
    assert (await parts.ask(secrets, caller=POD))[0] == 403


async def test_sent_and_hidden_events_are_observed_while_a_watch_is_open(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    seen: list[Observation] = []
    parts.sources.noted = observed_events(seen.append)
    parts.set_rules({"discardcloudservice": "chosen"})
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0", "chosen") as watch:
        cloud.store.create(cloud_service("lb"))
        cloud.store.create(service("web"))
        assert await watch.event() == ("ADDED", "web")
    hidden, added = seen
    assert (hidden.verb, hidden.name, hidden.sent, hidden.verdict) == ("HIDDEN", "lb", 0, "filtered")
    assert [(each.filter, each.hidden, each.reasons) for each in hidden.filters] == [
        ("discardcloudservice", 1, ("load-balancer",))
    ]
    assert (added.verb, added.name, added.verdict, added.source) == ("ADDED", "web", "viewed", "cloud")
    assert (added.sent > 0, added.watchers, added.version) == (True, 1, cloud.store.version)
    cloud.store.create(service("api"))
    assert await parts.names(SERVICES, "chosen") == ["api", "web"]
    assert len(seen) == 2, "nobody watches now"


def test_each_filter_counts_its_own_outcomes() -> None:
    reasons: dict[Why, int] = {
        (("first", dropped("gone")),): 2,
        (("first", kept("fine")), ("second", changed("moved"))): 3,
        (("first", changed("cut")), ("second", dropped("empty"))): 1,
    }
    assert list(_tallies(["first", "second"], 10, reasons)) == [
        Tally("first", 13, 1, 2, ("gone", "cut")),
        Tally("second", 10, 3, 1, ("moved", "empty")),
    ]


def test_an_object_is_counted_by_each_filter_that_changed_it() -> None:
    assert tallies_of_one((("first", kept("fine")), ("second", dropped("empty")))) == (
        Tally("second", 0, 0, 1, ("empty",)),
    )
    assert tallies_of_one(()) == ()
