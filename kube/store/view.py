"""What one kind of client sees: a projection, narrowed by selectors and written in one form.

Lists, WatchLists and watches of a view come from the same state. Each event is serialised once; watchers read the
view's history at their own pace. Semantics are those of kube-apiserver's watch cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kube.errors import StatusError, expired
from kube.requests.selectors import FieldSelector, LabelSelector
from kube.store.projection import ProjectedChange, Projection
from kube.store.ring import Ring
from kube.store.store import Item
from kube.wire.codec import Codec
from kube.wire.codec_base import ListBody

RING_MIN_EVENTS = 1000
"""A history at least this long lets a client that re-opens its watch resume; kube-apiserver's is of this order."""
RING_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of history kept per view: nodes with 1 GB of memory run several views."""

TRIM_DELAY = 0.1
"""Seconds until history over its bounds is dropped: every watcher that keeps up has taken a whole burst by then."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list is of: objects at one version. It stays as it is, whatever the store takes meanwhile."""

    codec: Codec
    api_version: str
    kind: str
    version: int
    items: list[Item]
    form: Form

    def raws(self, items: Iterable[Item]) -> list[bytes]:
        """Some of the items as they stand in the list; where only metadata was asked for, each must be parsed."""
        return [self.form.raw(self.codec, item) for item in items]

    def body(self, raws: Sequence[bytes]) -> ListBody:
        """The body of all of them."""
        return self.codec.encode_list(self.api_version, self.kind, self.version, raws)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects of a source a client asked for."""

    namespace: str
    labels: LabelSelector
    fields: FieldSelector

    @property
    def is_everything(self) -> bool:
        return not self.namespace and self.labels.is_everything and self.fields.is_everything

    def matches(self, item: Item) -> bool:
        if self.namespace and item.key[0] != self.namespace:
            return False
        return self.labels.matches(item.labels) and self.fields.matches(item.field)


class Form:
    """How objects are written: whole, or as PartialObjectMetadata where the client asked for no more."""

    def __init__(self, *, metadata_only: bool) -> None:
        self.metadata_only = metadata_only
        self.name = "metadata" if metadata_only else "whole"

    def type_of(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        return (
            ("meta.k8s.io/v1", "PartialObjectMetadata")
            if self.metadata_only
            else (item_api_version, item_kind)
        )

    def raw(self, codec: Codec, item: Item) -> bytes:
        return codec.metadata_only(item.raw) if self.metadata_only else item.raw


class View:
    """One projection, scope and form, and the history of what its watchers were told."""

    def __init__(self, projection: Projection, scope: Scope, form: Form) -> None:
        self.scope = scope
        self.form = form
        self.watchers: set[Watcher] = set()
        self._projection = projection
        self._everything = scope.is_everything
        version = projection.store.version
        # A client of an earlier process may hold this very version, and have seen it through other inputs: until
        # this view has told anybody its state, nobody can go on from there.
        self._ring = Ring(version)
        self._resumable_from = version + projection.filtered
        self._listed_version = 0
        self._needs_bookmark = False
        self._trimming: asyncio.TimerHandle | None = None
        projection.listen(self)

    def close(self) -> None:
        if self._trimming is not None:
            self._trimming.cancel()
        self.end_watches(None)
        self._projection.forget(self)

    @property
    def version(self) -> int:
        return max(self._projection.store.version, self._listed_version)

    @property
    def codec(self) -> Codec:
        return self._projection.store.codec

    @property
    def oldest_resumable(self) -> int:
        return max(self._ring.oldest, self._resumable_from)

    @property
    def projection(self) -> Projection:
        return self._projection

    def __iter__(self) -> Iterator[Item]:
        if self._everything:
            return iter(self._projection)
        return (item for item in self._projection if self.scope.matches(item))

    def listing(self, at_least: int = 0) -> Listing:
        """What a list is of; its resourceVersion is the view's, or a later one known to show the same state."""
        store = self._projection.store
        self._listed_version = max(self._listed_version, at_least)
        store.given_version = max(store.given_version, at_least)
        self._ring.touch(self.version)
        self._state_given()
        api_version, kind = self._type()
        return Listing(self.codec, api_version, kind, self.version, list(self), self.form)

    def snapshot(self) -> list[Item]:
        """What a watch with initial events begins with; take it and the watcher without awaiting between."""
        self._state_given()
        return list(self)

    def watch(self, since: int | None, *, bookmarks: bool) -> Watcher:
        """A watcher of what comes after version `since`, or after now when None.

        StatusError 410 when the events since then are not all known. A version of the future is waited for in
        silence, as kube-apiserver does.
        """
        untold = self._resumable_from > self.version
        if since is not None and (since < self.oldest_resumable or untold):
            raise expired(f"too old resource version: {since} ({self.oldest_resumable})")
        position = self._ring.end if since is None else self._ring.position_after(since)
        watcher = Watcher(self, position, since or 0, bookmarks=bookmarks)
        self.watchers.add(watcher)
        return watcher

    def frame(self, event_type: str, item: Item) -> bytes:
        """One serialised event."""
        api_version, kind = self._type()
        return self.codec.encode_event(event_type, api_version, kind, self.form.raw(self.codec, item))

    def bookmark(self, *, initial_events_end: bool = False) -> bytes:
        """A serialised BOOKMARK of the view's version."""
        api_version, kind = self._type()
        return self.codec.encode_bookmark(
            api_version, kind, self.version, initial_events_end=initial_events_end
        )

    def send_bookmark(self) -> None:
        """Tell watchers that asked for bookmarks which version they have reached."""
        if any(watcher.bookmarks for watcher in self.watchers):
            self._ring.touch(self.version)
            self._ring.append(self.version, self.bookmark(), is_bookmark=True)
            self._wake()

    def switch(self, projection: Projection) -> None:
        """Look through another chain from now on, and tell watchers just what that changes."""
        old, self._projection = self._projection, projection
        old.forget(self)
        projection.listen(self)
        before = {item.key: item for item in old if self.scope.matches(item)}
        after = {item.key: item for item in self}
        for key in sorted(before.keys() | after.keys()):
            was, now = before.get(key), after.get(key)
            if was is None or now is None or was.raw != now.raw:
                item = now or was
                assert item is not None
                self.changed(ProjectedChange(item.version, key, was, now, was, is_local=True))
        self.settled()

    def changed(self, step: ProjectedChange) -> None:
        before = step.before is not None and (self._everything or self.scope.matches(step.before))
        after = step.after is not None and (self._everything or self.scope.matches(step.after))
        if not before and not after:
            return
        event_type = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
        item = step.after if after else step.last
        if item is not None and not after:
            item = item if step.is_local else item.with_version(step.version)
        assert item is not None
        frame = step.frames.get((event_type, self.form.name))
        if frame is None:
            frame = step.frames[event_type, self.form.name] = self.frame(event_type, item)
        if step.is_local:
            self._ring.touch(self.version)
            self._needs_bookmark = True
        self._ring.append(step.version, frame)
        self._wake()
        if self._trimming is None:
            self._trimming = asyncio.get_running_loop().call_later(TRIM_DELAY, self._trim)

    def settled(self) -> None:
        self._ring.touch(self.version)
        if self._needs_bookmark:
            # Events of an input carry old versions; a client must not be left with one of those as its place.
            self._needs_bookmark = False
            self._ring.append(self.version, self.bookmark(), is_bookmark=True)
            self._wake()

    def restarted(self) -> None:
        self._listed_version = 0
        self._ring.restart(self.version)
        self._resumable_from = self.version + self._projection.filtered
        self.end_watches(expired("the cluster's resource versions went backwards"))

    def end_watches(self, error: StatusError | None) -> None:
        """End every watch: with an ERROR event, or cleanly so that clients resume."""
        for watcher in list(self.watchers):
            watcher.end(error)

    def _state_given(self) -> None:
        self._resumable_from = min(self._resumable_from, self.version)

    def _trim(self) -> None:
        self._trimming = None
        self._ring.trim(max(RING_MIN_EVENTS, 2 * len(self._projection.store)), RING_MAX_BYTES)

    def _type(self) -> tuple[str, str]:
        return self.form.type_of(self._projection.store.api_version, self._projection.store.kind)

    def _wake(self) -> None:
        for watcher in self.watchers:
            watcher.wake()


class Watcher:
    """One open watch: a position in its view's history."""

    __slots__ = (
        "_end",
        "_error",
        "_position",
        "_seen_version",
        "_waiter",
        "bookmarks",
        "ended",
        "fell_behind",
        "view",
    )

    def __init__(self, view: View, position: int, floor: int, *, bookmarks: bool) -> None:
        self.view = view
        self.bookmarks = bookmarks
        self.ended = False
        self.fell_behind = False
        """Cut because its client read too slowly; like any client whose watch ends it resumes by its version."""
        self._position = position
        self._seen_version = floor
        self._waiter: asyncio.Future[None] | None = None
        self._error: StatusError | None = None
        self._end: int | None = None
        """The position that it was ended at: what follows is not for it."""

    async def frames(self) -> list[bytes]:
        """The next events, as many as there are; empty when the watch has ended. StatusError when it ended with one."""
        while True:
            frames = self._read()
            if frames:
                return frames
            if self.ended:
                if self._error is not None:
                    raise self._error
                return []
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self, error: StatusError | None = None) -> None:
        """Let `frames` return what is left and then end."""
        self.ended = True
        self._error = self._error or error
        if self._end is None:
            self._end = self.view._ring.end
        self.view.watchers.discard(self)
        self.wake()

    def _read(self) -> list[bytes]:
        ring = self.view._ring
        if self._end is not None and self._position >= self._end:
            return []
        try:
            entries = ring.read(self._position)
        except LookupError:
            self.fell_behind = True
            self.end()
            return []
        if self._end is not None:
            entries = entries[: self._end - self._position]
        self._position += len(entries)
        if any(entry.sequence and not entry.is_bookmark for entry in entries):
            # An input's event mends a state that the client has, whatever version it came with.
            self._seen_version = 0
        floor = (self._seen_version, 0)
        return [
            entry.frame
            for entry in entries
            if (entry.version, entry.sequence) > floor and (self.bookmarks or not entry.is_bookmark)
        ]
