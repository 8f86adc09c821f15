"""The verification that a copy is as new as the cloud: it has every object, and no deleted one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from addons.requests.object_read import ObjectRead
from addons.views import consistent_list
from addons.views.consistent_list import ACCEPT, ATTEMPTS, wait_until_current
from addons.views.source import Source
from kube.errors import StatusError, expired, forbidden, too_large_version
from kube.http.client import ApiResponse, Client, Unreachable
from kube.json_type import Json
from kube.reflector.reflector import Reflector
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.store.history import Standing
from kube.store.scope import EVERYTHING, Scope
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.addons.support.hand_source import HandSource
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import SERVICES, fill, raw, read_of, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable import watch as scriptable_watch
from tests.cloud.scriptable.request_log import matching

ALL = read_of("/api/v1/services")


@dataclass
class Cloud:
    """A cloud with these Services at this version."""

    services: list[Json] = field(default_factory=list)
    version: int = 0
    error: Exception | None = None
    content_type: str = "application/json"
    asked: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)
    error_of_exact: StatusError | None = None

    async def request(
        self, method: str, path: str, *, query: dict[str, str], accept: str, timeout: float
    ) -> ApiResponse:
        self.asked.append((method, path, query, accept))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if self.error_of_exact is not None and "resourceVersionMatch" in query:
            raise self.error_of_exact
        codec = codec_for(Encoding.JSON)
        body = bytes(
            codec.encode_list("v1", "Service", ListMeta(self.version), [raw(each) for each in self.services])
        )
        return ApiResponse(self.content_type, body)


def begin(
    source: HandSource,
    cloud: Cloud,
    read: ObjectRead = ALL,
    scope: Scope = EVERYTHING,
    wait: float = 5.0,
    at: int = 0,
) -> asyncio.Task[int]:
    return asyncio.create_task(
        wait_until_current(cast(Source, source), cast(Client, cloud), read, scope, wait, at)
    )


async def run_callbacks() -> None:
    """Let every task run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def source() -> HandSource:
    made = HandSource()
    fill(made.store, [service("a", 5), service("b", 6)], 7)
    return made


@pytest.mark.parametrize(
    ("services", "version"),
    [([service("a", 5), service("b", 6)], 7), ([service("a", 5), service("b", 6)], 9)],
)
async def test_a_copy_with_every_object_is_current(
    source: HandSource, services: list[Json], version: int
) -> None:
    assert await begin(source, Cloud(services, version)) == version


@pytest.mark.parametrize(
    ("services", "event"),
    [
        ([service("a", 8), service("b", 6)], ("MODIFIED", service("a", 8))),
        ([service("a", 5), service("b", 6), service("c", 8)], ("ADDED", service("c", 8))),
        ([service("a", 5)], ("DELETED", service("b", 8))),
    ],
)
async def test_the_list_waits_for_an_older_copy(
    source: HandSource, services: list[Json], event: tuple[str, Json]
) -> None:
    waiting = begin(source, Cloud(services, 9))
    await run_callbacks()
    assert not waiting.done()
    source.store.apply(event[0], raw(event[1]))
    assert await waiting == 9


@pytest.mark.parametrize(
    ("services", "advance"),
    [
        ([service("a", 4), service("b", 6)], 7),
        ([service("a", 5), service("b", 6), service("other", 1)], 7),
        ([service("a", 5)], 9),
        ([service("a", 5), service("b", 6), service("z", 8)], 9),
    ],
)
async def test_a_copy_that_contradicts_the_cloud_is_listed_again(
    source: HandSource, services: list[Json], advance: int
) -> None:
    """The cloud was restored from a backup, and then reached the copy's version."""
    waiting = begin(source, Cloud(services, 9))
    await run_callbacks()
    source.store.advance(advance)
    await run_callbacks()
    assert not waiting.done()
    assert source.reflector.disproved
    source.store.set_standing(Standing.DISPROVED)
    fill(source.store, services, 9)
    source.store.advance(9)
    assert await waiting == 9


async def test_an_exact_version_that_the_cloud_still_has_is_verified_at_that_version(
    source: HandSource,
) -> None:
    """Names at a later version do not show which objects were created after the client's version and deleted since."""
    source.store.given_version = 12
    cloud = Cloud([service("a", 5), service("b", 6)], 9)
    assert await begin(source, cloud, at=9) == 9
    assert [query for _, _, query, _ in cloud.asked] == [
        {"resourceVersion": "9", "resourceVersionMatch": "Exact"}
    ]


@pytest.mark.parametrize("error", [expired("compacted"), too_large_version(9, 8)])
async def test_the_clouds_current_version_is_verified_if_an_older_one_is_gone(
    source: HandSource, error: StatusError
) -> None:
    cloud = Cloud([service("a", 5), service("b", 6)], 10, error_of_exact=error)
    assert await begin(source, cloud, at=9) == 10


async def test_a_cloud_that_is_behind_the_copy_was_restored(source: HandSource) -> None:
    services = [service("a", 5), service("b", 6)]
    waiting = begin(source, Cloud(services, 6))
    await run_callbacks()
    assert source.reflector.disproved
    source.store.set_standing(Standing.DISPROVED)
    fill(source.store, services, 6)
    assert await waiting == 6


async def test_a_copy_that_remains_disproved_after_each_list_gives_504(source: HandSource) -> None:
    """The leader cannot reach the restored cloud, and serves the previous state again and again."""
    cloud = Cloud([service("a", 5), service("b", 6)], 6)
    waiting = begin(source, cloud)
    for _ in range(2 * ATTEMPTS):
        await run_callbacks()
        source.store.advance(7)
    with refuses(504):
        await waiting
    assert len(cloud.asked) == ATTEMPTS


async def test_an_object_newer_than_the_response_does_not_disprove_the_copy(source: HandSource) -> None:
    waiting = begin(source, Cloud([service("a", 5), service("b", 6)], 9))
    await asyncio.sleep(0)
    source.store.apply("ADDED", raw(service("young", 12)))
    assert await waiting == 9


async def test_versions_of_objects_outside_the_scope_are_ignored(source: HandSource) -> None:
    source.store.apply("ADDED", raw(service("c", 8)))
    scope = Scope("default", parse_label_selector(""), parse_field_selector("metadata.name=a"))
    cloud = Cloud([service("a", 5)], 9)
    read = read_of("/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Da&limit=5")
    assert await begin(source, cloud, read, scope) == 9
    assert cloud.asked == [
        ("GET", "/api/v1/namespaces/default/services", {"fieldSelector": "metadata.name=a"}, ACCEPT)
    ]


def test_only_names_and_versions_are_requested() -> None:
    assert all("as=PartialObjectMetadataList" in each for each in ACCEPT.split(","))


async def test_a_copy_that_does_not_catch_up_gives_504(source: HandSource) -> None:
    with refuses(504):
        await begin(source, Cloud([service("c", 8)], 9), wait=0.01)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("no route"), 503),
        (forbidden("no"), 403),
        (StatusError(429, "TooManyRequests", "slow"), 429),
    ],
)
async def test_a_failed_verification_request_is_passed_on(
    source: HandSource, error: Exception, code: int
) -> None:
    with refuses(code):
        await begin(source, Cloud(error=error))


@pytest.mark.parametrize("content_type", ["text/html", "", "application/vnd.kubernetes.protobuf"])
async def test_an_unreadable_verification_response_is_an_error(source: HandSource, content_type: str) -> None:
    with refuses(503):
        await begin(source, Cloud([service("a", 5)], 9, content_type=content_type))


@pytest.fixture
def many(parts: HubWorld, monkeypatch: pytest.MonkeyPatch) -> HubWorld:
    """A hub for which two objects count as many."""
    monkeypatch.setattr(consistent_list, "FEW_OBJECTS", 1)
    monkeypatch.setattr(scriptable_watch, "BOOKMARK_BEFORE_END", 2.99)
    parts.set_rules({"cache_agents": "cached", "filter_discardcloudservice": "cached/services"})
    return parts


@pytest.fixture
def following(many: HubWorld, monkeypatch: pytest.MonkeyPatch) -> HubWorld:
    """A hub as in `many`, whose copies come from a leader and are not verified at the cloud."""
    monkeypatch.setattr(Reflector, "is_proven", False)
    return many


async def test_a_consistent_list_of_many_objects_requests_only_later_writes(
    many: HubWorld, cloud: ScriptableCloud
) -> None:
    """The names of 1,000 objects once took 102 KB for a list of 38."""
    for name in ("one", "two"):
        cloud.store.create(service(name))
    assert await many.names(SERVICES) == ["one", "two"]
    lists = matching(verb="list", resource="services")
    assert cloud.requests.count(resource="services", verb="list") == 1, "the first list is the cloud's"
    cloud.store.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}})
    code, found = await many.ask(SERVICES)
    assert (code, found["metadata"]["resourceVersion"]) == (200, str(cloud.store.version))
    cloud.store.create(service("three"))
    assert await many.names(SERVICES) == ["one", "three", "two"]
    later = cloud.requests.where(lists)[1:]
    assert {"limit=1" in request.query.split("&") for request in later} == {True}


async def test_a_consistent_list_of_a_follower_is_compared_with_writes_at_the_cloud(
    following: HubWorld, cloud: ScriptableCloud
) -> None:
    """A follower's copy is not verified at the cloud: first its last event is looked up there, or names are
    compared."""
    cloud.store.create(service("one"))
    async with following.watch(f"{SERVICES}?watch=true&resourceVersion=0") as watch:
        assert await watch.event() == ("ADDED", "one")
        for name in ("two", "three"):
            cloud.store.create(service(name))
            assert await watch.event() == ("ADDED", name)
        cloud.store.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "a"}}
        )
        (source,) = [each for each in following.sources if each.list_watch.type.resource == "services"]
        assert await following.names(SERVICES) == ["one", "three", "two"]
        assert source.store.last_event is not None
        source.store.last_event = source.store.last_event._replace(version=source.store.version - 1)
        assert await following.names(SERVICES) == ["one", "three", "two"]
    lists = [each.query for each in cloud.requests.where(matching(verb="list", resource="services"))]
    assert ["limit" in each for each in lists] == [True, True, True, False]


async def test_a_leaders_list_without_later_events_is_verified_by_one_object_and_a_count(
    following: HubWorld, cloud: ScriptableCloud
) -> None:
    """A follower once requested the names of 200 Services, 72 KB, for each list without a version."""
    for name in ("one", "two", "three"):
        cloud.store.create(service(name))
    assert await following.names(f"{SERVICES}?resourceVersion=0") == ["one", "three", "two"]
    (source,) = [each for each in following.sources if each.list_watch.type.resource == "services"]
    assert source.store.last_event is None
    for _ in range(2):
        cloud.store.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "s", "namespace": "a"}}
        )
        assert await following.names(SERVICES) == ["one", "three", "two"]
    lists = [each.query for each in cloud.requests.where(matching(verb="list", resource="services"))]
    assert {"limit=1" in each.split("&") for each in lists[1:]} == {True}
    source.store.replace(source.store.codec, "v1", "Service", source.store.version, [])
    assert await following.names(SERVICES) == ["one", "three", "two"], "of another number names tell"
    assert "limit" not in cloud.requests.where(matching(verb="list", resource="services"))[-1].query
