"""A view's history, and the missed events that a client gets when it resumes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kube.store.listing import Form
from kube.store.projection import InputKey, Projection
from kube.store.view import View
from kube.store.watcher import Watcher
from tests.kube.support.toys import (
    Toy,
    ToyChain,
    WatchClient,
    after,
    events_of,
    fill,
    filled,
    pending_events,
    pending_frames,
    refusal,
    scope,
    seen,
    short,
    state_of,
    tell,
    view_of,
    watching,
)

INPUT = ("p", "i")


async def test_the_last_bookmark_has_the_version_at_the_end_of_the_watch() -> None:
    """The client may be slow: events that arrive before it reads the bookmark belong to its next watch."""
    store = filled(10)
    view = view_of(store)
    client = watching(view)
    tell(store, "ADDED", Toy("x", version=11))
    assert client.watcher is not None
    client.watcher.end()
    for version in (12, 13):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
    assert pending_events(client) == [("ADDED", "x", 11), ("BOOKMARK", "", 11)]
    client.watch()
    assert pending_events(client) == [("ADDED", "at12", 12), ("ADDED", "at13", 13)]


async def test_a_bookmark_is_sent_after_unread_events() -> None:
    store = filled(10)
    client = watching(view_of(store))
    tell(store, "ADDED", Toy("x", version=11))
    client.view.send_bookmark()
    tell(store, "ADDED", Toy("y", version=12))
    assert pending_events(client) == [("ADDED", "x", 11), ("ADDED", "y", 12), ("BOOKMARK", "", 12)]


@pytest.mark.parametrize("is_list", [True, False])
async def test_an_accepted_deletion_is_sent_once(is_list: bool) -> None:
    """The cloud's own event, or a list without the object, follows the deletion that the node applied."""
    x = Toy("x", version=9)
    store = filled(10, x)
    client = watching(view_of(store))
    store.apply_response(x.key, None)
    if is_list:
        fill(store, 11)
    else:
        tell(store, "DELETED", replace(x, version=11))
    assert [event[0] for event in pending_events(client)] == ["DELETED", "BOOKMARK"]
    client.close()
    client.watch()
    assert not client.state
    assert refusal(lambda: client.view.watch(8, bookmarks=True)) == 410


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("filters", ["", "p"])
async def test_a_restore_that_undoes_accepted_writes_is_sent_to_clients_that_have_them(
    filters: str, version: int
) -> None:
    """The cloud was restored to a time before the writes, at the version of the copy or a later one."""
    x, new = Toy("x", version=9), Toy("new", version=12)
    store = filled(10, x)
    chain = ToyChain(filters, {(filters, "i"): "keep"}) if filters else None
    view = View(Projection(store, chain), scope(), Form(metadata_only=False))
    store.apply_response(x.key, replace(x, version=13, address="10.0.0.2").raw(store.codec.encoding))
    store.apply_response(new.key, new.raw(store.codec.encoding))
    client = WatchClient(view)
    client.take_list()
    fill(store, version, x)
    client.watch()
    client.drain()
    assert client.state == state_of(view) == {x.key: seen(x)}


async def test_a_client_resuming_at_an_older_local_event_gets_later_deletions() -> None:
    """The event of a local write has its object's older version, and the client has newer objects."""
    x, later = Toy("x", version=10), Toy("later", version=11)
    store = filled(10, x)
    client = watching(view_of(store), bookmarks=False)
    tell(store, "ADDED", later)
    store.amend(replace(x, address="10.0.0.2").raw(store.codec.encoding))
    client.drain()
    client.close()
    assert (client.version, later.key in client.state) == (10, True)
    client.view.switch(Projection(store, ToyChain("p", {INPUT: "keep"})))
    tell(store, "DELETED", replace(later, version=12))
    client.watch()
    assert client.state == state_of(client.view)


@pytest.mark.parametrize("since", [10, None])
async def test_a_resumed_watch_has_no_initial_events(since: int | None) -> None:
    """The bookmark that ends initial events is current: a client that got it first would lose the logged events."""
    store = filled(10)
    view = view_of(store)
    tell(store, "ADDED", Toy("x", version=11))
    watcher = view.watch(since, bookmarks=True)
    assert list(watcher.initial_events()) == []


async def test_a_bookmark_is_never_older_than_the_version_of_the_watch() -> None:
    store = filled(10)
    view = view_of(store)
    watcher = view.watch(20, bookmarks=True)
    view.send_bookmark()
    assert [short(event) for event in events_of(view, pending_frames(watcher) or [])] == [
        ("BOOKMARK", "", 20)
    ]


async def test_quiet_watches_get_no_bookmarks() -> None:
    """60 watches of quiet views once cost 19.5 MB of bookmarks a day."""
    view = view_of(filled(10))
    client = watching(view)
    before = view.log.end
    for _ in range(24 * 60):
        view.send_bookmark()
        pending_events(client)
    assert view.log.end == before
    client.close()
    client.watch()
    assert pending_events(client) == [], "bookmarks are no history"


async def test_changes_before_the_first_list_of_a_filtered_view_are_no_history() -> None:
    """While inputs become known, objects appear one by one. They are the state of the first list, not history."""
    inputs: dict[InputKey, str] = {}
    store = filled(10, Toy("x", reads="i"), Toy("y", reads="i"))
    view = view_of(store, inputs)
    inputs[INPUT] = "10.9.9.9"
    view.projection.inputs_changed([INPUT])
    client = watching(view)
    assert {each.address for each in client.state.values()} == {"10.9.9.9"}
    assert pending_events(client) == []


async def test_changes_before_the_first_watchlist_are_no_history() -> None:
    inputs: dict[InputKey, str] = {}
    store = filled(10, Toy("x", reads="i"))
    view = view_of(store, inputs)
    inputs[INPUT] = "keep"
    view.projection.inputs_changed([INPUT])
    client = WatchClient(view)
    client.watch_list()
    client.close()
    client.watch()
    assert pending_events(client) == []


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_client_of_a_former_view_gets_the_state_again(is_trusted: bool) -> None:
    """A client may have a version issued by a former view, whose filters an edit of the rules removed."""
    store = filled(10, Toy("x", version=4), Toy("y", version=5))
    view = View(Projection(store, None), scope(), Form(metadata_only=False), lambda: 0 if is_trusted else 10)
    tell(store, "DELETED", Toy("y", version=11))
    watcher = view.watch(10, bookmarks=True)
    tell(store, "MODIFIED", Toy("x", version=12))
    first = [short(event) for event in events_of(view, watcher.initial_events())]
    then = [short(event) for event in events_of(view, pending_frames(watcher) or [])]
    missed, later = ("DELETED", "y", 11), ("MODIFIED", "x", 12)
    if is_trusted:
        assert (first, then) == ([], [missed, later])
    else:
        assert (first, then) == ([missed, ("ADDED", "x", 4), ("BOOKMARK", "", 11)], [later])


@pytest.mark.parametrize("given", [9, 10])
async def test_a_list_of_one_client_does_not_confirm_the_version_of_another(given: int) -> None:
    """Without writes both clients have the same version, one of them from filters that hid an object."""
    store = filled(10, Toy("x", version=4))
    view = View(Projection(store, None), scope(), Form(metadata_only=False), lambda: given)
    view.listing()
    first = [short(event) for event in events_of(view, view.watch(10, bookmarks=True).initial_events())]
    assert first == ([("ADDED", "x", 4), ("BOOKMARK", "", 10)] if given == 10 else [])


async def test_a_watchlist_may_have_a_version_confirmed_by_the_cloud() -> None:
    view = view_of(filled(10, Toy("x", version=4)))
    watcher = view.watch_list(15, bookmarks=True)
    assert [short(event) for event in events_of(view, watcher.initial_events())] == [
        ("ADDED", "x", 4),
        ("BOOKMARK", "", 15),
    ]


async def test_a_local_write_reaches_a_client_that_resumes_at_the_current_version() -> None:
    """The object retains its version, which is older than the client's."""
    store = filled(10, Toy("x", version=4))
    view = view_of(store, where=scope(fields="spec.clusterIP!=None"))
    store.amend(Toy("x", version=4, address="None").raw(store.codec.encoding))
    assert after(view, 10) == [("DELETED", "x", 4), ("BOOKMARK", "", 10)]
    watcher = view.watch(10, bookmarks=True)
    store.amend(Toy("x", version=4).raw(store.codec.encoding))
    events = [short(event) for event in events_of(view, pending_frames(watcher) or [])]
    assert events[-2:] == [("ADDED", "x", 4), ("BOOKMARK", "", 10)]


async def test_a_client_ahead_of_a_local_event_gets_it_and_then_the_clouds_events() -> None:
    """The client's list is the cloud's own, newer than this view, and may be from before or after the local event."""
    x = Toy("x", version=9)
    view = view_of(store := filled(10, x))
    view.given_by_others = lambda: 20
    store.amend(replace(x, app="accepted").raw(store.codec.encoding))
    client, later = view.watch(20, bookmarks=True), view.watch(21, bookmarks=True)

    def sent(watcher: Watcher) -> list[tuple[str, str, int]]:
        return [short(event) for event in events_of(view, pending_frames(watcher) or [])]

    assert sent(client) == [("MODIFIED", "x", 9), ("BOOKMARK", "", 20)]
    assert sent(later) == [], "its list was made after the event"
    tell(store, "MODIFIED", replace(x, version=18))
    tell(store, "ADDED", Toy("y", version=30))
    assert sent(client) == [("MODIFIED", "x", 18), ("ADDED", "y", 30)]
    assert sent(later) == [("ADDED", "y", 30)]


async def test_an_object_that_enters_a_scope_late_is_sent_to_newer_watchers() -> None:
    """Other objects advanced the store, without an event in this scope."""
    store = filled(10, Toy("x", version=4, address="None"))
    view = View(Projection(store, None), scope(fields="spec.clusterIP!=None"), Form(metadata_only=False))
    tell(store, "ADDED", Toy("other", version=20, address="None"))
    client = WatchClient(view)
    client.watch_list()
    client.close()
    store.amend(Toy("x", version=4).raw(store.codec.encoding))
    client.watch()
    assert pending_events(client) == [("ADDED", "x", 4), ("BOOKMARK", "", 20)]


async def test_a_client_of_another_source_gets_the_state_after_a_local_event() -> None:
    """The client's list was newer than this view at the event, and may be from before or after it."""
    x = Toy("x", version=9)
    view = view_of(store := filled(10, x))
    view.given_by_others = lambda: 20
    store.amend(replace(x, app="accepted").raw(store.codec.encoding))
    tell(store, "ADDED", Toy("y", version=30))
    for version, begins in ((20, ["x", "y"]), (21, [])):
        first = view.watch(version, bookmarks=False)
        assert [short(each)[1] for each in events_of(view, first.initial_events())] == begins
    assert after(view, 10)[0][:2] == ("MODIFIED", "x"), "a client of this view gets the event"


@pytest.mark.parametrize("is_early", [True, False], ids=["view before the deletion", "view after it"])
async def test_a_client_of_an_earlier_process_gets_a_deletion_accepted_before_the_store_reaches_it(
    *, is_early: bool
) -> None:
    """The earlier process listed y at a version that the copy on disk did not have."""
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    view = view_of(store)
    store.apply_response(("a", "y"), None)
    view = view if is_early else view_of(store)
    view.given_earlier = lambda: 13
    watcher = view.watch(13, bookmarks=True)
    sent = events_of(view, [*watcher.initial_events(), *(pending_frames(watcher) or [])])
    assert [short(event) for event in sent if event.key] == [("DELETED", "y", 9)]
    assert (sent[-1].type, sent[-1].version) == ("BOOKMARK", 13)
    store.advance(13)
    watcher = view.watch(13, bookmarks=False)
    sent = events_of(view, watcher.initial_events())
    assert [short(event) for event in sent] == [("DELETED", "y", 13), ("ADDED", "x", 4)]
