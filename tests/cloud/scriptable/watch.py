"""One watch: its initial events, the events of changes within its selector, bookmarks, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass

from kube.errors import StatusError, expired, too_large_version
from kube.requests.request_info import ListOptions, validate_list_options
from kube.requests.resource_versions import parse_version
from tests.cloud.scriptable.selection import Selection
from tests.cloud.scriptable.storage import Change, ChangeType, Compacted, Follower, Storage, Stored

BOOKMARK_BEFORE_END = 2.0
"""Seconds before its end at which a watch gets a last bookmark, as in kube-apiserver's cacher.go."""


@dataclass(slots=True)
class WatchSettings:
    """Settings that a test may change. A watch reads them when it starts."""

    bookmark_interval: float = 60.0
    """Seconds between bookmarks."""
    timeout: float = 1800.0
    """Seconds that a watch lasts by default; a real server takes up to twice as long."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a watch: an object, a bookmark (neither object nor status), or an error (a status)."""

    type: str
    version: int = 0
    stored: Stored | None = None
    status: StatusError | None = None
    initial_end: bool = False
    """True if this bookmark ends the initial events."""


class Watcher(Follower):
    """An open watch. It listens from its creation on, so that nothing is missed before `events` is read."""

    def __init__(
        self, storage: Storage, selection: Selection, options: ListOptions, settings: WatchSettings
    ) -> None:
        """Raises StatusError for refusals before the stream; later ones are ERROR events."""
        validate_list_options(options)
        self._from = parse_version(options.resource_version)
        self._storage = storage
        self._selection = selection
        self._options = options
        self._settings = settings
        self._collection = storage.collection(selection.resource.collection)
        self._queue: deque[Event] = deque()
        self._ended = False
        self._wake = asyncio.Event()
        self._first = list(self._begin())
        if not (self._first and self._first[-1].status):
            self._collection.follow(self)
        else:
            self._ended = True

    @property
    def ended(self) -> bool:
        """Return True if no more events will come."""
        return self._ended and not self._queue

    def close(self) -> None:
        """Stop following the storage."""
        self._ended = True
        self._collection.unfollow(self)
        self._wake.set()

    def changed(self, change: Change) -> None:
        event = transition(self._selection, change) if change.version > self._from else None
        if event is None or self._ended:
            return
        self._queue.append(event)
        self._wake.set()

    def restored(self) -> None:
        self.close()

    async def events(self) -> AsyncGenerator[Event]:
        """Yield every event until the watch ends: at its timeout or after an error."""
        now = asyncio.get_running_loop().time
        deadline = now() + (self._options.timeout_seconds or self._settings.timeout)
        bookmark = self._next_bookmark(now(), deadline)
        try:
            for event in self._first if now() < deadline else ():
                yield event
            while not self.ended and now() < deadline:
                if self._queue:
                    yield self._queue.popleft()
                elif now() >= bookmark:
                    bookmark = self._next_bookmark(now(), deadline)
                    if self._storage.version >= self._from:
                        yield Event("BOOKMARK", self._storage.version)
                else:
                    await self._sleep(min(deadline, bookmark))
        finally:
            self.close()

    def _begin(self) -> Iterator[Event]:
        options = self._options
        initial = options.send_initial_events
        if initial and self._from > self._storage.version:
            yield Event("ERROR", status=too_large_version(self._from, self._storage.version))
        elif initial or (initial is None and not self._from):
            for key in sorted(self._collection.objects):
                stored = self._collection.objects[key]
                if self._selection.matches(stored.value):
                    yield Event("ADDED", stored.version, stored)
            if options.allow_bookmarks:
                yield Event("BOOKMARK", self._storage.version, initial_end=True)
        else:
            try:
                changes = self._collection.changes_since(self._from)
            except Compacted as error:
                yield Event(
                    "ERROR", status=expired(f"too old resource version: {self._from} ({error.oldest})")
                )
                return
            for change in changes:
                if event := transition(self._selection, change):
                    yield event

    def _next_bookmark(self, now: float, deadline: float) -> float:
        if not self._options.allow_bookmarks:
            return float("inf")
        last = deadline - BOOKMARK_BEFORE_END
        following = now + self._settings.bookmark_interval
        return last if now < last < following else following

    async def _sleep(self, until: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            pass


def transition(selection: Selection, change: Change) -> Event | None:
    """Map a change to an event for a watch with this selection; None if neither state is selected. An object that
    leaves the selection is DELETED in its former state, with the new version (convertToWatchEvent of k8s.io/apiserver).
    """
    was = change.previous is not None and selection.matches(change.previous.value)
    is_now = change.type is not ChangeType.DELETED and selection.matches(change.stored.value)
    if is_now:
        return Event("MODIFIED" if was else "ADDED", change.version, change.stored)
    if not was or change.previous is None:
        return None
    if change.type is ChangeType.DELETED:
        return Event("DELETED", change.version, change.stored)
    return Event("DELETED", change.version, _at_version(change.previous, change.version))


def _at_version(stored: Stored, version: int) -> Stored:
    metadata = {**stored.value["metadata"], "resourceVersion": str(version)}
    return Stored({**stored.value, "metadata": metadata}, version)
