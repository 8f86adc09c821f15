"""One watch over a storage, on the loop's virtual clock."""

from __future__ import annotations

import asyncio

import pytest

from kube.requests.request_info import ListOptions
from tests.cloud.scriptable.resources import ResourceTable
from tests.cloud.scriptable.selection import select
from tests.cloud.scriptable.storage import Storage
from tests.cloud.scriptable.watch import Event, Watcher, WatchSettings

PODS = ResourceTable().named("pods")
BOOKMARKS = ListOptions(watch=True, resource_version="101", allow_bookmarks=True)


@pytest.fixture
def storage() -> Storage:
    """One pod, at version 101."""
    storage = Storage()
    write(storage, "p")
    return storage


def write(storage: Storage, name: str, **labels: str) -> None:
    storage.write("pods", ("", name), {"metadata": {"name": name, "labels": labels}})


def watcher(storage: Storage, options: ListOptions, settings: WatchSettings | None = None) -> Watcher:
    return Watcher(storage, select(PODS, "", options), options, settings or WatchSettings())


def shown(event: Event) -> tuple[str, int]:
    return event.type, event.version


@pytest.mark.looptime
async def test_bookmarks_come_at_their_interval_and_before_the_end(storage: Storage) -> None:
    loop = asyncio.get_running_loop()
    options = ListOptions(watch=True, resource_version="101", allow_bookmarks=True, timeout_seconds=150)
    times = [round(loop.time()) async for _ in watcher(storage, options).events()]
    assert times == [60, 120, 148]
    assert round(loop.time()) == 150


@pytest.mark.looptime
async def test_a_watch_that_says_nothing_lasts_as_the_server_likes(storage: Storage) -> None:
    options = ListOptions(watch=True, resource_version="101")
    assert [event async for event in watcher(storage, options).events()] == []
    assert round(asyncio.get_running_loop().time()) == 1800


@pytest.mark.looptime
async def test_a_bookmark_says_the_version_of_writes_to_other_collections(storage: Storage) -> None:
    events = watcher(storage, BOOKMARKS).events()
    storage.write("nodes", ("", "n"), {"metadata": {"name": "n"}})
    assert shown(await anext(events)) == ("BOOKMARK", 102)
    await events.aclose()


@pytest.mark.looptime
async def test_a_bookmark_never_overtakes_an_event(storage: Storage) -> None:
    events = watcher(storage, BOOKMARKS, WatchSettings(bookmark_interval=1)).events()
    assert shown(await anext(events)) == ("BOOKMARK", 101)
    await asyncio.sleep(5)
    write(storage, "q")
    assert [shown(await anext(events)) for _ in range(2)] == [("ADDED", 102), ("BOOKMARK", 102)]
    await events.aclose()


@pytest.mark.looptime
async def test_no_bookmark_before_a_future_version_is_reached(storage: Storage) -> None:
    options = ListOptions(watch=True, resource_version="103", allow_bookmarks=True, timeout_seconds=5)
    events = watcher(storage, options, WatchSettings(bookmark_interval=1)).events()
    waiting = asyncio.create_task(anext(events))
    await asyncio.sleep(1.5)
    for name in "abc":
        write(storage, name)
    assert shown(await waiting) == ("ADDED", 104)
    await events.aclose()


async def test_a_watch_begins_when_it_is_made_not_when_it_is_read(storage: Storage) -> None:
    options = ListOptions(watch=True, resource_version="0", allow_bookmarks=True)
    watching = watcher(storage, options)
    write(storage, "q")
    events = watching.events()
    told = [shown(await anext(events)) for _ in range(3)]
    assert told == [("ADDED", 101), ("BOOKMARK", 101), ("ADDED", 102)]
    await events.aclose()


async def test_a_full_queue_ends_the_watch_after_what_is_in_it(storage: Storage) -> None:
    watching = watcher(storage, ListOptions(watch=True, resource_version="101"), WatchSettings(queue_limit=2))
    for name in "abc":
        write(storage, name)
    assert [shown(event) async for event in watching.events()] == [("ADDED", 102), ("ADDED", 103)]


async def test_a_restored_storage_ends_the_watch(storage: Storage) -> None:
    watching = watcher(storage, ListOptions(watch=True, resource_version="101"))
    storage.restore(storage.snapshot())
    assert [event async for event in watching.events()] == []


async def test_a_closed_watch_is_told_nothing_more(storage: Storage) -> None:
    watching = watcher(storage, ListOptions(watch=True, resource_version="101"))
    watching.close()
    write(storage, "q")
    assert [event async for event in watching.events()] == []


async def test_too_old_names_the_oldest_version(storage: Storage) -> None:
    events = watcher(storage, ListOptions(watch=True, resource_version="99")).events()
    status = (await anext(events)).status
    assert status is not None
    assert (status.code, status.message) == (410, "too old resource version: 99 (100)")
    assert await anext(events, None) is None


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"on": "1"}, {"on": "1"}, "MODIFIED"),
        ({}, {"on": "1"}, "ADDED"),
        ({"on": "1"}, {}, "DELETED"),
        ({}, {}, ""),
    ],
)
async def test_transitions(
    storage: Storage, before: dict[str, str], after: dict[str, str], told: str
) -> None:
    write(storage, "x", **before)
    options = ListOptions(watch=True, resource_version="102", label_selector="on=1")
    watching = watcher(storage, options)
    write(storage, "x", **after)
    watching.close()
    events = [event async for event in watching.events()]
    assert [event.type for event in events] == ([told] if told else [])
    for event in events:
        assert event.stored is not None
        metadata = event.stored.value["metadata"]
        assert (metadata["resourceVersion"], metadata["labels"]) == ("103", {"on": "1"})
