"""Watchers of differences get the same events as all others, from the same records."""

from __future__ import annotations

import pytest

from kube.store.scope import Scope
from kube.store.store import Store
from kube.store.stream_coding import DIFFERENCES
from kube.store.view import View
from kube.store.watcher import Watcher
from kube.wire.codec import codec_for
from kube.wire.codec_base import WatchFrame
from kube.wire.encoding import Encoding
from tests.kube.support.differences import Holder
from tests.kube.support.toys import Toy, filled, pending_frames, scope, tell, view_of


def held(view: View) -> Holder:
    """Return a receiver with the view's current state."""
    holder = Holder(view.codec)
    state = view.watch_list(bookmarks=True, coding=DIFFERENCES)
    holder.feed(b"".join(state.coding.state(state.initial_events())))
    state.end()
    return holder


@pytest.mark.parametrize("metadata_only", [False, True], ids=["whole", "metadata"])
@pytest.mark.parametrize("where", [scope(), scope(labels="app=web")], ids=["all", "some"])
async def test_differences_decode_to_the_same_objects(
    encoding: Encoding, where: Scope, metadata_only: bool
) -> None:
    def changes(store: Store) -> None:
        """Yield changes: objects are created, changed, moved out of a scope, and deleted."""
        tell(store, "ADDED", Toy("y", version=11, app="web"))
        tell(store, "MODIFIED", Toy("x", version=12, app="web", address="10.0.0.2"))
        tell(store, "MODIFIED", Toy("x", version=13, app="db"))
        tell(store, "DELETED", Toy("y", version=14, app="web"))
        store.advance(20)

    def both(view: View) -> tuple[Watcher, Watcher]:
        """Open a watcher of complete objects and one of differences, from the view's version."""
        return (
            view.watch(view.version, bookmarks=True),
            view.watch(view.version, bookmarks=True, coding=DIFFERENCES),
        )

    def plain(view: View, watcher: Watcher) -> list[WatchFrame]:
        """Return the frames for a watcher of complete objects."""
        return view.codec.frames().feed(b"".join(pending_frames(watcher) or ()))

    store = filled(10, Toy("x", version=4, app="web"), encoding=encoding)
    view = view_of(store, where=where, metadata_only=metadata_only)
    plain_watcher, differing = both(view)
    holder = held(view)
    changes(store)
    view.send_bookmark()
    expected = plain(view, plain_watcher)
    assert len(expected) == 5
    assert holder.read(b"".join(pending_frames(differing) or ())) == expected


async def test_all_watchers_share_one_record_of_an_event() -> None:
    store = filled(10, Toy("x", version=4))
    view = view_of(store)
    one, other = (view.watch(10, bookmarks=False, coding=DIFFERENCES) for _ in range(2))
    tell(store, "MODIFIED", Toy("x", version=11, address="10.0.0.2"))
    first, second = pending_frames(one), pending_frames(other)
    assert first is not None
    assert second is not None
    assert first[0] is second[0]


async def test_a_view_without_watchers_of_differences_encodes_none() -> None:
    store = filled(10, Toy("x", version=4))
    view = view_of(store)
    watcher = view.watch(10, bookmarks=False)
    tell(store, "MODIFIED", Toy("x", version=11, address="10.0.0.2"))
    assert len(pending_frames(watcher) or ()) == 1
    ((_, change),) = view.log.read(0, 1)
    assert list(change.events) == [("whole", "MODIFIED")]


async def test_events_before_the_first_watcher_of_differences_are_sent_as_differences() -> None:
    store = filled(10, Toy("x", version=4))
    view = view_of(store)
    holder = held(view)
    tell(store, "MODIFIED", Toy("x", version=11, address="10.0.0.2"))
    view.log.tidy()
    late = view.watch(10, bookmarks=False, coding=DIFFERENCES)
    (frame,) = holder.feed(b"".join(pending_frames(late) or ()))
    codec = codec_for(Encoding.JSON)
    assert (frame.type, codec.peek(frame.raw).version) == ("MODIFIED", 11)
    tell(store, "MODIFIED", Toy("x", version=12, address="10.0.0.3"))
    (frame,) = holder.read(b"".join(pending_frames(late) or ()))
    assert codec.peek(frame.raw).version == 12
