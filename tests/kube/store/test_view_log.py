"""The log of a view: watchers that fall behind, and dropped changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kube.store import change_log as log_module
from kube.store import view as view_module
from kube.store.listing import Form
from kube.store.projection import InputKey, Projection
from kube.store.view import View
from tests.kube.support.toys import (
    Toy,
    WatchClient,
    after,
    fill,
    filled,
    pending_events,
    refusal,
    scope,
    tell,
    view_of,
    watching,
)

INPUT = ("p", "i")


@pytest.fixture
async def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Limit the history to one event from the next loop iteration on, and run that iteration."""
    monkeypatch.setattr(log_module, "LOG_MAX_BYTES", 1)
    monkeypatch.setattr(log_module, "TRIM_DELAY", 0.0)

    async def run_callbacks() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    return run_callbacks


async def test_a_bookmark_does_not_wake_watchers_that_did_not_request_it() -> None:
    store = filled(10)
    view = view_of(store)
    quiet, other = view.watch(10, bookmarks=False), view.watch(10, bookmarks=True)
    task = asyncio.create_task(quiet.frames())
    await asyncio.sleep(0)
    view.send_bookmark()
    assert len(await other.frames()) == 1
    await asyncio.sleep(0)
    assert not task.done()
    quiet.end()
    assert await task == []
    other.end()


# -- history -------------------------------------------------------------------------------------------------------


async def test_a_watch_behind_the_log_is_ended_and_resumes_from_the_stores_history(
    impatient: Callable[[], Awaitable[None]],
) -> None:
    store = filled(10)
    view = view_of(store)
    slow = watching(view)
    for version in range(11, 15):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
    await impatient()
    watcher = slow.watcher
    assert watcher is not None
    assert pending_events(slow) == []
    assert watcher.fell_behind
    assert watcher not in view.watchers
    assert view.oldest == 13
    slow.watch()
    assert {name for _, name in slow.state} == {"at11", "at12", "at13", "at14"}
    assert after(view, 13) == [("ADDED", "at14", 14)]


async def test_the_watch_of_a_client_that_keeps_up_is_not_ended(
    impatient: Callable[[], Awaitable[None]],
) -> None:
    store = filled(10)
    client = watching(view_of(store))
    for version in range(11, 15):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
        assert pending_events(client) == [("ADDED", f"at{version}", version)]
        await impatient()


async def test_a_trimmed_change_by_an_input_is_corrected_at_its_version(
    impatient: Callable[[], Awaitable[None]],
) -> None:
    """Another client's list at that version does not confirm this client's state."""
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", version=4, reads="i"), Toy("y", version=5, reads="i"))
    view = view_of(store, inputs)
    away = watching(view)
    away.close()
    inputs[INPUT] = "drop"
    view.projection.inputs_changed([INPUT])
    await impatient()
    WatchClient(view).take_list()
    away.watch()
    assert away.state == {}


def test_the_log_is_sized_for_the_store() -> None:
    """A relist may change every object: a client that reconnects soon after must not need a list."""
    assert log_module.LOG_MIN_CHANGES >= 1000
    assert log_module.LOG_MAX_BYTES >= 16 * 1024 * 1024


async def test_versions_confirmed_by_the_cloud_are_retained_over_a_gap() -> None:
    store = filled(10)
    view = view_of(store)
    for version in range(11, 12 + view_module.MAX_CONFIRMED):
        view.listing(version)
    fill(store, 500)
    assert refusal(lambda: view.watch(11, bookmarks=True)) == 410, "it is the oldest of too many"
    assert after(view, 12) == [("BOOKMARK", "", 500)]


async def test_a_busy_scope_drops_nothing_of_a_quiet_one(impatient: Callable[[], Awaitable[None]]) -> None:
    """Both scopes read the same log, which has dropped the changes in between."""
    store = filled(10)
    projection = Projection(store, None)
    quiet, busy = (View(projection, scope(name), Form(metadata_only=False)) for name in ("a", "b"))
    client, away = watching(quiet), watching(quiet)
    watching(busy)
    away.close()
    for version in range(11, 15):
        tell(store, "ADDED", Toy(f"at{version}", "b", version=version))
        await impatient()
    assert (quiet.oldest, busy.oldest) == (10, 13)
    tell(store, "ADDED", Toy("x", "a", version=15))
    away.watch()
    for each in (client, away):
        assert pending_events(each) == [("ADDED", "x", 15)]
