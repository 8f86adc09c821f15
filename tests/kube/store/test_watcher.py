"""Events that a view sends its watchers directly: to which of them, in which order, and when the client's task writes
instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kube.store.stream_coding import DIFFERENCES, PLAIN, StreamCoding
from kube.store.view import View
from kube.store.watcher import Watcher
from tests.kube.support.toys import Toy, events_of, filled, tell, view_of


@dataclass
class Client:
    """A client's events: `direct` through its fast path while that accepts them, all others by its task."""

    watcher: Watcher
    direct: list[bytes] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list)
    order: list[bytes] = field(default_factory=list)
    is_writable: bool = True

    def __post_init__(self) -> None:
        self.watcher.try_write = self.take

    def take(self, data: bytes) -> bool:
        if not self.is_writable:
            return False
        self.direct.append(data)
        self.order.append(data)
        return True

    async def run(self) -> None:
        while frames := await self.watcher.frames():
            self.written += frames
            self.order += frames


@asynccontextmanager
async def watching(*watchers: Watcher) -> AsyncIterator[list[Client]]:
    """Return clients that wait for events."""
    clients = [Client(each) for each in watchers]
    tasks = [asyncio.create_task(each.run()) for each in clients]
    await run_callbacks()
    try:
        yield clients
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_callbacks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def versions(view: View, *pieces: bytes) -> list[int]:
    return [each.version for each in events_of(view, pieces)]


@pytest.fixture
def view() -> View:
    return view_of(filled(10, Toy("x", version=4)))


@pytest.mark.parametrize("coding", [PLAIN, DIFFERENCES])
async def test_waiting_clients_share_encoded_events_and_are_written_without_their_tasks(
    view: View, coding: StreamCoding
) -> None:
    store = view.projection.store
    watchers = [view.watch(10, bookmarks=True, coding=coding) for _ in range(3)]
    async with watching(*watchers) as clients:
        for version in (11, 12):
            tell(store, "MODIFIED", Toy("x", version=version))
        await run_callbacks()
        tell(store, "MODIFIED", Toy("x", version=13))
        await run_callbacks()
        assert [len(each.direct) for each in clients] == [2, 2, 2], "two events of one turn go together"
        assert all(each.direct[0] is clients[0].direct[0] for each in clients)
        assert [each.written for each in clients] == [[], [], []]
        assert [each.watcher.unread for each in clients] == [0, 0, 0]
    if coding is PLAIN:
        assert versions(view, *clients[0].direct) == [11, 12, 13]


async def test_a_full_client_is_written_by_its_task_and_does_not_delay_the_rest(view: View) -> None:
    store = view.projection.store
    async with watching(view.watch(10, bookmarks=True), view.watch(10, bookmarks=True)) as (full, free):
        full.is_writable = False
        tell(store, "MODIFIED", Toy("x", version=11))
        await run_callbacks()
        full.is_writable = True
        tell(store, "MODIFIED", Toy("x", version=12))
        await run_callbacks()
    assert versions(view, *free.direct) == versions(view, *full.order) == [11, 12]
    assert (len(full.written), len(full.direct)) == (1, 1)


async def test_a_failing_fast_path_is_dropped_and_does_not_delay_the_rest(view: View) -> None:
    def fail(_: bytes) -> bool:
        raise RuntimeError

    store = view.projection.store
    async with watching(*(view.watch(10, bookmarks=True) for _ in range(3))) as clients:
        clients[1].watcher.try_write = fail
        for version in (11, 12):
            tell(store, "MODIFIED", Toy("x", version=version))
            await run_callbacks()
    assert [versions(view, *each.order) for each in clients] == [[11, 12]] * 3
    assert [len(each.written) for each in clients] == [0, 2, 0]


async def test_a_client_gets_no_event_that_it_has_seen(view: View) -> None:
    """The client has a version from elsewhere, newer than the view's (rule 5)."""
    store = view.projection.store
    async with watching(view.watch(12, bookmarks=False)) as (client,):
        for version in (11, 12, 13):
            tell(store, "MODIFIED", Toy("x", version=version))
            await run_callbacks()
    assert versions(view, *client.order) == [13]


async def test_each_client_gets_a_bookmark_after_a_local_event(view: View) -> None:
    """The event has an old version, from which no client could resume."""
    store = view.projection.store
    async with watching(view.watch(10, bookmarks=True)) as (client,):
        store.amend(Toy("x", version=4, app="local").raw(store.codec.encoding))
        await run_callbacks()
    assert [each.type for each in events_of(view, client.order)] == ["MODIFIED", "BOOKMARK"]
    assert client.direct == []


async def test_a_large_burst_is_written_by_tasks_between_callbacks(view: View) -> None:
    store = view.projection.store
    async with watching(view.watch(10, bookmarks=False)) as (client,):
        for version in range(11, 1011):
            tell(store, "MODIFIED", Toy("x", version=version))
        await run_callbacks()
    assert client.direct == []
    assert versions(view, *client.order) == list(range(11, 1011))
