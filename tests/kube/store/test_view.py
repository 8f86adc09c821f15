"""Views, case by case: lists, WatchLists, watches and their resumption. test_view_property.py combines them."""

from __future__ import annotations

import pytest

from kube.errors import StatusError, forbidden
from kube.store.listing import Form
from kube.store.projection import Projection
from kube.store.scope import Scope
from kube.store.view import View
from kube.store.watcher import READ_BATCH_BYTES
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support.toys import (
    Toy,
    WatchClient,
    after,
    body_of,
    events_of,
    fill,
    filled,
    pending_events,
    pending_frames,
    refusal,
    scope,
    short,
    tell,
    view_of,
    watching,
)

LONG = 32 * 1024

# -- lists ---------------------------------------------------------------------------------------------------------


def test_a_list_has_the_stores_version_and_kind(encoding: Encoding) -> None:
    view = view_of(filled(10, Toy("x", version=4, app="web"), encoding=encoding))
    page = codec_for(encoding).decode_list(body_of(view))
    assert (page.api_version, page.kind, page.version, len(page.items)) == ("v1", "Service", 10, 1)


def test_a_metadata_list_has_metadata_only(encoding: Encoding) -> None:
    view = view_of(filled(10, Toy("x", version=4, app="web"), encoding=encoding), metadata_only=True)
    page = codec_for(encoding).decode_list(body_of(view))
    assert (page.api_version, page.kind) == ("meta.k8s.io/v1", "PartialObjectMetadata")
    assert codec_for(encoding).peek(page.items[0]).labels == {"app": "web"}
    assert b"10.0.0.1" not in page.items[0]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (scope(), "wxyz"),
        (scope("a"), "wx"),
        (scope("c"), ""),
        (scope(labels="app=web"), "wy"),
        (scope(labels="!app"), "x"),
        (scope("b", "app in (web,db)"), "yz"),
        (scope(fields="metadata.name=y"), "y"),
        (scope(fields="metadata.namespace!=a"), "yz"),
        (scope(fields="spec.clusterIP!=None"), "wxy"),
        (scope(fields="spec.clusterIP=None"), "z"),
        (scope("b", "app", "spec.clusterIP!=None,metadata.name!=z"), "y"),
    ],
)
def test_a_scope_selects_by_namespace_labels_and_fields(encoding: Encoding, where: Scope, names: str) -> None:
    toys = (
        Toy("w", "a", app="web"),
        Toy("x", "a"),
        Toy("y", "b", app="web"),
        Toy("z", "b", app="db", address="None"),
    )
    view = view_of(filled(10, *toys, encoding=encoding), where=where)
    assert "".join(sorted(item.key[1] for item in view)) == names


# -- watches -------------------------------------------------------------------------------------------------------


async def test_a_watch_resumes_from_a_list() -> None:
    store = filled(10, Toy("x", version=4))
    client = watching(view_of(store))
    assert pending_events(client) == []
    tell(store, "ADDED", Toy("y", version=11))
    tell(store, "MODIFIED", Toy("x", version=12))
    tell(store, "DELETED", Toy("y", version=13))
    assert pending_events(client) == [("ADDED", "y", 11), ("MODIFIED", "x", 12), ("DELETED", "y", 13)]


async def test_unread_events_of_a_watch_are_counted() -> None:
    store = filled(10, Toy("x", version=4))
    view = view_of(store)
    watcher = view.watch(10, bookmarks=False)
    tell(store, "ADDED", Toy("y", version=11))
    tell(store, "MODIFIED", Toy("x", version=12))
    assert watcher.unread == 2
    assert len(await watcher.frames()) == 2
    assert watcher.unread == 0


async def test_a_watch_from_an_earlier_version_gets_later_events() -> None:
    store = filled(10)
    view = view_of(store)
    for version in (11, 13):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
    assert after(view, 10) == [("ADDED", "at11", 11), ("ADDED", "at13", 13)]
    assert after(view, 11) == after(view, 12) == [("ADDED", "at13", 13)]
    assert after(view, 13) == []
    assert refusal(lambda: view.watch(9, bookmarks=True)) == 410


async def test_a_watch_from_a_future_version_is_silent_until_then() -> None:
    store = filled(10)
    view = view_of(store)
    watcher = view.watch(12, bookmarks=True)
    for version in (11, 12, 13):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
    assert [short(event) for event in events_of(view, pending_frames(watcher) or [])] == [
        ("ADDED", "at13", 13)
    ]
    watcher.end()


async def test_objects_enter_and_leave_a_selection() -> None:
    """An object leaves in its former state, at the version at which it left (convertToWatchEvent of
    k8s.io/apiserver)."""
    store = filled(10, Toy("x", version=4))
    client = watching(view_of(store, where=scope(labels="app")))
    tell(store, "MODIFIED", Toy("x", version=11, app="web"))
    tell(store, "MODIFIED", Toy("x", version=12, app="db"))
    tell(store, "MODIFIED", Toy("x", version=13))
    tell(store, "MODIFIED", Toy("x", version=14))
    tell(store, "DELETED", Toy("x", version=15))
    events = client.drain()
    assert [short(event) for event in events] == [
        ("ADDED", "x", 11),
        ("MODIFIED", "x", 12),
        ("DELETED", "x", 13),
    ]
    assert events[-1].seen is not None
    assert events[-1].seen.app == "db"


async def test_a_relist_by_the_reflector_continues_clients_watches() -> None:
    store = filled(10, Toy("same", version=1), Toy("changed", version=2), Toy("gone", version=3))
    client = watching(view_of(store))
    fill(store, 20, Toy("same", version=1), Toy("changed", version=15), Toy("new", version=14))
    assert pending_events(client) == [
        ("ADDED", "new", 14),
        ("MODIFIED", "changed", 15),
        ("DELETED", "gone", 20),
        ("BOOKMARK", "", 20),
    ]


async def test_views_of_one_projection_share_the_bytes_of_an_event() -> None:
    projection = Projection(filled(10), None)
    views = [View(projection, scope(namespace), Form(metadata_only=False)) for namespace in ("", "a", "b")]
    watchers = [view.watch(10, bookmarks=True) for view in views]
    tell(projection.store, "ADDED", Toy("x", "a", version=11))
    first, second = pending_frames(watchers[0]), pending_frames(watchers[1])
    assert first is not None
    assert second is not None
    assert first[0] is second[0]
    assert pending_frames(watchers[2]) is None


async def test_the_log_compresses_a_long_object_and_encodes_it_once_for_all_watchers() -> None:
    projection = Projection(filled(10), None)
    views = [View(projection, scope(namespace), Form(metadata_only=False)) for namespace in ("", "a")]
    watchers = [view.watch(10, bookmarks=True) for view in views]
    tell(projection.store, "ADDED", Toy("x", "a", version=11, address="1" * LONG))
    ((_, change),) = projection.log.read(0, 1)
    assert len(change.events) == 1
    projection.log.tidy()
    assert not change.events
    assert projection.log.bytes < LONG / 10
    for watcher in watchers:
        (frame,) = pending_frames(watcher) or []
        assert b"1" * LONG in frame


async def test_a_client_that_falls_behind_reads_the_history_in_small_parts() -> None:
    view = view_of(filled(10))
    watcher = view.watch(10, bookmarks=True)
    for version in range(11, 61):
        tell(view.projection.store, "ADDED", Toy(f"x{version}", version=version, address="1" * LONG))
    watcher.send_bookmark()
    taken = []
    while frames := pending_frames(watcher):
        taken.append(frames)
    assert max(sum(map(len, frames)) for frames in taken) < READ_BATCH_BYTES + 2 * LONG
    assert [len(frames) > 1 for frames in taken[:-1]] == [True] * (len(taken) - 1)
    events = [each for frames in taken for each in events_of(view, frames)]
    assert [each.version for each in events] == [*range(11, 61), 60], "all, and the bookmark"
    assert events[-1].type == "BOOKMARK"


async def test_a_watchlist_sends_the_state_and_then_later_events() -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=3))
    client = WatchClient(view_of(store))
    client.watch_list()
    assert (set(client.state), client.version) == ({("a", "x"), ("a", "y")}, 10)
    tell(store, "DELETED", Toy("x", version=11))
    assert pending_events(client) == [("DELETED", "x", 11)]


async def test_bookmarks_are_sent_only_to_watches_that_requested_them() -> None:
    store = filled(10)
    view = view_of(store)
    asked, other = watching(view), watching(view, bookmarks=False)
    store.advance(20)
    view.send_bookmark()
    assert pending_events(asked) == [("BOOKMARK", "", 20)]
    assert pending_events(other) == []
    assert (asked.version, other.version) == (20, 10)


# -- ends ----------------------------------------------------------------------------------------------------------


async def test_versions_that_go_backwards_end_every_watch_with_410() -> None:
    store = filled(50, Toy("x", version=40))
    view = view_of(store)
    reader, behind = watching(view), watching(view)
    reader.drain()
    tell(store, "ADDED", Toy("y", version=51))
    reader.drain()
    fill(store, 30, Toy("x", version=25))
    for client in (reader, behind):
        assert refusal(client.drain) == 410
    assert not view.watchers
    assert refusal(lambda: view.watch(29, bookmarks=True)) == 410
    reader.take_list()
    reader.watch()
    tell(store, "MODIFIED", Toy("x", version=31))
    assert pending_events(reader) == [("MODIFIED", "x", 31)]


async def test_an_ended_watch_sends_only_pending_events() -> None:
    """Otherwise a busy view would extend a watch beyond its timeoutSeconds."""
    store = filled(10)
    view = view_of(store)
    watcher = view.watch(10, bookmarks=True)
    tell(store, "ADDED", Toy("x", version=11))
    watcher.end()
    tell(store, "ADDED", Toy("y", version=12))
    store.advance(20)
    assert [short(event) for event in events_of(view, await watcher.frames())] == [
        ("ADDED", "x", 11),
        ("BOOKMARK", "", 11),
    ]
    assert await watcher.frames() == []
    assert after(view, 11) == [("ADDED", "y", 12)]


async def test_a_refusal_ends_watches_with_the_message_of_the_cloud() -> None:
    view = view_of(filled(10))
    watcher = view.watch(10, bookmarks=True)
    view.end_watches(forbidden("no longer"))
    with pytest.raises(StatusError, match="no longer"):
        await watcher.frames()


async def test_a_closed_view_ends_its_watches_cleanly_and_is_not_notified() -> None:
    store = filled(10)
    view = view_of(store)
    watcher = view.watch(10, bookmarks=True)
    view.close()
    assert [short(event) for event in events_of(view, await watcher.frames())] == [("BOOKMARK", "", 10)]
    assert await watcher.frames() == []
    tell(store, "ADDED", Toy("x", version=11))
    assert not view.projection.in_use
    assert await watcher.frames() == []
