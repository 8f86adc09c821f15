"""The watches that request bookmarks: those of large stores, those shared by hubs, and the first after each break."""

from __future__ import annotations

import pytest

from kube.reflector.bookmarks import SMALL_STORE, Bookmarks
from kube.reflector.history_verifier import FEW_OBJECTS, HistoryVerifier
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable import faults as fault
from tests.cloud.scriptable.request_log import LoggedRequest
from tests.kube.reflector.test_upstream import Failing
from tests.kube.support.reflecting import LISTS, WATCHES, Start, copied, equal, queries, service, until
from tests.kube.support.toys import Toy

JSON = codec_for(Encoding.JSON)


def stored(count: int = 1, size: int = 0) -> Store:
    """Return a store of `count` objects, the first of which has `size` additional bytes."""
    store = Store()
    toys = (Toy(f"x{number}", version=5, app="y" * size * (not number)) for number in range(count))
    raws = [toy.raw(Encoding.JSON) for toy in toys]
    store.replace(JSON, "v1", "Service", 7, raws)
    return store


def asks(store: Store, verifier: HistoryVerifier | None = None) -> bool:
    """Return True if the watch after one with a bookmark requests bookmarks again."""
    bookmarks = Bookmarks(store, verifier or HistoryVerifier(store))
    assert bookmarks.decide(None), "no watch has said yet how far the cloud is"
    bookmarks.note_bookmark()
    return bookmarks.decide(None)


@pytest.mark.parametrize(
    ("count", "size", "asked"),
    [(0, 0, False), (FEW_OBJECTS, 0, False), (FEW_OBJECTS + 1, 0, True), (1, SMALL_STORE, True)],
)
def test_a_list_cheaper_than_an_hour_of_bookmarks_requests_none(count: int, size: int, asked: bool) -> None:
    assert asks(stored(count, size)) is asked


def test_a_store_behind_an_issued_version_requests_bookmarks() -> None:
    given, restored = stored(), stored()
    given.given_version = 9
    restored.former_version = 7
    assert asks(given)
    assert asks(restored), "a source stays until the cloud is past what clients have of the former history"


def test_an_unverified_history_requests_bookmarks() -> None:
    store = stored()
    verifier = HistoryVerifier(store)
    verifier.compare(9, {("a", "x0"): 5, ("a", "late"): 9}, 0)
    assert not verifier.is_verified
    assert asks(store, verifier), "what went since is proved by a version, which no event may bring"


def without(request: LoggedRequest) -> bool:
    return WATCHES(request) and "allowWatchBookmarks" not in request.query


async def quiet(cloud: ScriptableCloud, start: Start, store: Store) -> Reflector:
    """Return a reflector whose watch requests no bookmarks, as one has arrived."""
    cloud.watches.bookmark_interval = 0.01
    reflector = start(store)
    await cloud.requests.until(without)
    await until(reflector, store, lambda: reflector.state is State.WATCHING)
    return reflector


async def test_a_small_store_gets_only_events_once_it_has_the_version_of_the_cloud(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.store.create(service("x"))
    store = Store()
    reflector = start(store)
    await until(reflector, store, copied(reflector, store, cloud))
    elsewhere = cloud.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}})
    cloud.watches.bookmark_interval = 0.01
    reflector.verify()
    await cloud.requests.until(without)
    (asked,) = queries(cloud, without)
    assert asked["resourceVersion"] == elsewhere["metadata"]["resourceVersion"], "where the bookmark was"
    cloud.store.create(service("y"))
    await until(reflector, store, lambda: equal(store, cloud))
    assert (len(cloud.requests.where(without)), reflector.lists) == (1, 1)


async def test_a_newer_version_issued_elsewhere_restarts_the_watch(
    cloud: ScriptableCloud, start: Start
) -> None:
    store = Store()
    reflector = await quiet(cloud, start, store)
    elsewhere = cloud.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}})
    newer = int(elsewhere["metadata"]["resourceVersion"])
    assert store.version < newer
    lists = len(cloud.requests.where(LISTS))
    store.given_version = newer
    reflector.remind()
    await cloud.requests.until(without, 2)
    assert store.version == newer
    assert len(cloud.requests.where(LISTS)) == lists, "nothing was broken: there is nothing to prove"


async def test_after_a_break_a_watch_requests_bookmarks_again(cloud: ScriptableCloud, start: Start) -> None:
    store = Store()
    reflector = await quiet(cloud, start, store)
    before = len(cloud.requests.where(WATCHES))
    await cloud.stop()
    await until(reflector, store, lambda: reflector.state is State.WAITING)
    await cloud.start()
    await cloud.requests.until(without, 2)
    asked = ["allowWatchBookmarks" in query for query in queries(cloud, WATCHES)[before:]]
    assert asked[-2:] == [True, False]
    assert reflector.lists == 1


async def test_bookmarks_are_requested_after_a_version_became_too_old(
    cloud: ScriptableCloud, start: Start
) -> None:
    """For watches of one node or its pods in a large cluster: other writes soon push their version out of the watch
    cache."""
    cloud.faults.add(fault.ExpiredWatch(), when=without)
    cloud.watches.bookmark_interval = 0.01
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: reflector.lists == 2 and reflector.state is State.WATCHING)
    for name in ("one", "two"):
        cloud.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await until(reflector, store, lambda: store.version == cloud.store.version)
    assert len(cloud.requests.where(without)) == 1


async def test_a_reflector_of_a_leader_always_requests_bookmarks(
    cloud: ScriptableCloud, start: Start
) -> None:
    cloud.watches.bookmark_interval = 0.01
    store = Store()
    reflector = start(store)
    reflector.upstream = Failing(reflector.client)
    for name in ("one", "two"):
        cloud.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await until(reflector, store, lambda: store.version == cloud.store.version)
    assert not cloud.requests.where(without)


async def test_the_age_of_a_store_without_events_counts_from_the_end_of_its_watch(
    cloud: ScriptableCloud, start: Start
) -> None:
    store = Store()
    reflector = await quiet(cloud, start, store)
    opened = reflector.heard
    await cloud.stop()
    await until(reflector, store, lambda: reflector.state is State.WAITING)
    assert reflector.heard > opened, "its watch told until then that nothing was written"
