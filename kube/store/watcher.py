"""Serves one open watch of a view: its first events, then the projection's log from a position on.

Usually every watcher of a view has read its whole log, so all get the same next events: `NewEvents` encodes them once
for each coding, and writes them to each client without waking its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from kube.differences.records import Former, event_record
from kube.errors import StatusError
from kube.store.change_log import Log, ProjectedChange
from kube.store.initial_events import InitialEvents
from kube.store.listing import Form
from kube.store.projection import Projection
from kube.store.scope import Scope
from kube.store.store import Item
from kube.store.stream_coding import StreamCoding, ViewEvent
from kube.wire.codec import Codec
from kube.wire.codec_base import CHUNK, HISTORY_GAP, INITIAL_EVENTS_ENDED, NO_ANNOTATIONS

READ_BATCH_BYTES = 256 * 1024
"""Bytes of events that are read for one client before they are sent, apart from the last event."""
type TryWrite = Callable[[bytes], bool]
"""Sends bytes to a client immediately. Sends nothing and returns False if the client's buffer is full, or the client
has left."""


class WatcherContext:
    """The part that watchers of a view share: the log of a projection within a scope, in one form."""

    def __init__(self, projection: Projection, form: Form, scope: Scope) -> None:
        self.form = form
        self.scope = scope
        self._everything = scope.is_everything
        self.forgotten = 0
        """The position after the last change of this view that the log has dropped."""
        self.newest = 0
        """The position after the last change of this view."""
        self.oldest = 0
        """The version from which on the log has every change of this view, so that a client at it can resume."""
        self.watchers: dict[Watcher, None] = {}
        """The open watchers, in order of arrival."""
        self.projection = projection
        self._confirmed = [0]
        """The newest versions that the cloud confirmed for lists of this view, ascending (rule 7)."""
        self._last_bookmark = (0, b"")

    @property
    def log(self) -> Log:
        return self.projection.log

    @property
    def version(self) -> int:
        return max(self.projection.store.version, self._confirmed[-1])

    @property
    def codec(self) -> Codec:
        return self.form.codec(self.projection.store.codec)

    def is_ahead(self, seen: int) -> bool:
        """True if the store has not reached a client's version, and the cloud has not confirmed the view's state at
        it."""
        return seen > self.projection.store.version and not self.has_confirmed(seen)

    def reached(self, seen: int) -> int:
        """The version up to which a client has all events, after it came with `seen` and read the log to its end."""
        return seen if self.is_ahead(seen) else self.version

    def has_confirmed(self, version: int) -> bool:
        """True if the cloud has confirmed the view's state at a version."""
        return version in self._confirmed

    def _type(self) -> tuple[str, str]:
        return self.projection.store.api_version, self.projection.store.kind

    def frame(self, event_type: str, item: Item) -> bytes:
        codec, type_ = self.codec, self.form.type_of(*self._type())
        return codec.encode_event(event_type, *type_, self.form.event(codec, item))

    def event_type(self, change: ProjectedChange) -> str | None:
        """The event type by which clients get a change; None if they get none."""
        before, after = change.before is not None, change.after is not None
        if not self._everything:
            before = change.before is not None and self.scope.matches(change.before)
            after = change.after is not None and self.scope.matches(change.after)
        if before and after:
            return None if change.is_same else "MODIFIED"
        if after:
            return "ADDED"
        return "DELETED" if before else None

    def made(self, change: ProjectedChange, type_: str) -> ViewEvent:
        """Encode the event of a change, once for all views of the form."""
        item = change.after if type_ != "DELETED" else change.last
        assert item is not None
        if type_ == "DELETED" and not change.is_local:
            item = item.with_version(change.version)
        frame = self.log.event(change, (self.form.name, type_), lambda: self.frame(type_, item))
        event = ViewEvent(*change.at, frame, lambda: self._record(change, type_, frame))
        if change.events:  # the log is open, and will drop both
            change.made[self] = event
        return event

    def event(self, change: ProjectedChange) -> ViewEvent | None:
        """The event by which clients get a change; None if they get none."""
        if (made := change.made.get(self)) is not None:
            return made
        type_ = self.event_type(change)
        return self.made(change, type_) if type_ is not None else None

    def _record(self, change: ProjectedChange, type_: str, frame: bytes) -> bytes:
        """Encode the event as a difference to the object that watchers hold."""

        def write() -> bytes:
            former = change.before if type_ != "ADDED" else None
            if former is None:
                return event_record(frame, None)
            return event_record(frame, Former(*former.key, former.version, self.form.raw(self.codec, former)))

        return self.log.event(change, (f"differences of {self.form.name}", type_), write)

    def headed(self, first: bytes) -> bytes:
        """Complete the first events of a watch, as `Form.headed`."""
        return self.form.headed(first, *self._type())

    def bookmark(self, version: int, annotations: Mapping[str, str] = NO_ANNOTATIONS) -> bytes:
        """Encode a bookmark. All watchers of the view send the same bytes, so it is encoded once for hundreds."""
        if annotations:
            return self.form.bookmark(self.codec, *self._type(), version, annotations)
        if self._last_bookmark[0] != version:
            written = self.form.bookmark(self.codec, *self._type(), version, NO_ANNOTATIONS)
            self._last_bookmark = (version, written)
        return self._last_bookmark[1]


class NewEvents:
    """Encodes new events of a view, for all watchers that have read its log up to the first of them."""

    def __init__(self, events: list[ViewEvent], newest: int, first: int, end: int) -> None:
        """Set `newest`, the position after the view's last event before these, and `first`, the position of the first
        of these."""
        self.newest, self.first, self.end = newest, first, end
        self._events = events
        self._written: dict[str, bytes] = {}
        self.oldest = events[0].version if events else 0
        is_small = 0 < sum(len(event.frame) for event in events) <= CHUNK
        self.is_shared = is_small and not any(event.sequence for event in events)
        """True if all clients get the same bytes. After a local event, each gets its own bookmark."""

    def written(self, coding: StreamCoding) -> bytes:
        """The events in a coding, encoded once."""
        frames = self._written.get(coding.name)
        if frames is None:
            frames = self._written[coding.name] = b"".join(map(coding.event, self._events))
        return frames


class Watcher:
    """One open watch, at a position in its view's log."""

    __slots__ = (
        "_bookmark_due",
        "_end",
        "_error",
        "_former",
        "_gap",
        "_initial",
        "_position",
        "_start",
        "_waiter",
        "bookmarks",
        "coding",
        "ended",
        "fell_behind",
        "seen_version",
        "skips_seen",
        "try_write",
        "view",
    )

    def __init__(
        self,
        view: WatcherContext,
        position: int,
        seen_version: int,
        initial: InitialEvents | None,
        *,
        bookmarks: bool,
        coding: StreamCoding,
    ) -> None:
        """Make a watcher. `initial` is the client's first state; None if it resumes from its version."""
        self.view = view
        self.coding = coding
        self.bookmarks = bookmarks
        self.try_write: TryWrite | None = None
        """Sends events directly while `frames` has nothing pending; None if the client allows no direct writes."""
        self.ended = False
        self.fell_behind = False
        """True if the view ended the watch because its client read too slowly. The client resumes by its version."""
        self._start = view.reached(seen_version)
        self._initial = initial
        self._position = position
        self._former: list[tuple[Log, int, int]] = []
        """Unread parts of logs that the view used before, or that an ended watch still reads: log, start and end."""
        self.seen_version = seen_version
        """The version that the client came with, up to which it has seen the cloud's events (rule 5); 0 for none."""
        self.skips_seen = True
        """True if the client gets none of the cloud's events up to `seen_version`; False if it may lack a local
        event."""
        self._bookmark_due = False
        self._gap = NO_ANNOTATIONS
        """The annotations of the next bookmark, which report a gap in the history."""
        self._waiter: asyncio.Future[None] | None = None
        self._error: StatusError | None = None
        self._end: int | None = None
        """The version at which the watch was ended. The client gets nothing newer."""

    @property
    def unread(self) -> int:
        """The number of changes that `frames` has neither returned nor skipped."""
        former = sum(end - position for _, position, end in self._former)
        return former + max(0, self.view.newest - self._position)

    def leave(self, log: Log, position: int) -> None:
        """Read the rest of the current log, and then another log from a position on."""
        if (begin := self._position) < self.view.newest:
            if begin >= self.view.forgotten:
                begin = max(begin, log.start)
            self._former.append((log, begin, log.end))
            self.wake()
        self._position = position

    def skip(self) -> None:
        """Skip all unread events, because they belong to a previous history."""
        self._former.clear()
        self._position = self.view.log.end

    def initial_events(self) -> Iterator[bytes]:
        """Yield the initial events and state, and the bookmark that ends them, encoded by `coding.state`."""
        initial, self._initial = self._initial, None
        if initial is None:
            return
        yield from initial.frames(self.view.frame)
        if self.bookmarks:
            ends = INITIAL_EVENTS_ENDED if initial.is_list else NO_ANNOTATIONS
            yield self.view.bookmark(self._start, ends)

    async def frames(self) -> list[bytes]:
        """Return the next encoded events; empty when the watch has ended. StatusError if it ended with one."""
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

    def deliver(self, new: NewEvents) -> None:
        """Send events to a client that has all earlier ones and space in its buffer. Otherwise wake its task, which
        sends them."""
        if new.newest <= self._position < new.first:
            self._position = new.first  # nothing in between belongs to the view
        if self._can_take(new) and self._send(new.written(self.coding)):
            self._position = new.end
        else:
            self.wake()

    def _can_take(self, new: NewEvents) -> bool:
        """True if the task waits in `frames`, and these events are the client's next ones."""
        waits = self._waiter is not None and not self._waiter.done()
        return (
            waits
            and new.is_shared
            and self._position == new.first
            and not self._former
            and self.seen_version < new.oldest
            and not self._bookmark_due
            and not self.ended
        )

    def _send(self, data: bytes) -> bool:
        if self.try_write is None:
            return False
        try:
            return self.try_write(data)
        except Exception:
            # The client's task gets the same error, and ends the watch with it. Other clients need not wait for that.
            self.try_write = None
            return False

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send_bookmark(self) -> None:
        """Send a bookmark after `frames` has returned all events up to the bookmark's version."""
        self._bookmark_due = True
        self.wake()

    def note_gap(self, since: int) -> None:
        """Send a bookmark that also reports a gap to other hubs: a list left it after this version.

        Of several gaps, the first is reported, as one gap.
        """
        self._gap = self._gap or {HISTORY_GAP: str(since)}
        if self.bookmarks:
            self.send_bookmark()

    def end(self, error: StatusError | None = None) -> None:
        """End `frames` after the remaining events, and a last bookmark unless there is an error."""
        if self._end is None:
            self._end = self.view.reached(self.seen_version)
            self.leave(self.view.log, self.view.log.end)
            self._error = error
            self._bookmark_due = error is None
        self.ended = True
        self.view.watchers.pop(self, None)
        self.wake()

    def _read(self) -> list[bytes]:
        """Read some events up to the end of the log, or of the watch, and append a bookmark if it is due."""
        if self.fell_behind:
            return []
        frames: list[bytes] = []
        while not frames and (span := self._span()) is not None:
            log, position, end = span
            if position < (log.start if self._former else self.view.forgotten):
                self.fell_behind = True
                self.end()
                return []
            events, position = self._some(log, position, end)
            if self._former:
                self._former[0] = log, position, end
            else:
                self._position = position
            seen = self.seen_version if self.skips_seen else 0
            is_older = bool(events) and seen < events[-1].version < self.seen_version
            if is_older or any(event.sequence for event in events):
                # The last event may carry an old version, from which the client could not resume.
                self._bookmark_due = self._error is None
            write = self.coding.event
            frames = [write(event) for event in events if event.version > seen or event.sequence]
        if self._bookmark_due and self._span() is None:
            self._bookmark_due = False
            if self.bookmarks:
                version = self.view.reached(self.seen_version) if self._end is None else self._end
                frames.append(self.coding.frame(self.view.bookmark(version, self._gap)))
                self._gap = NO_ANNOTATIONS
        return frames

    def _span(self) -> tuple[Log, int, int] | None:
        """The log to read now, with start and end; None if nothing is unread."""
        while self._former:
            if self._former[0][1] < self._former[0][2]:
                return self._former[0]
            del self._former[0]
        is_unread = self._end is None and self._position < self.view.newest
        return (self.view.log, self._position, self.view.newest) if is_unread else None

    def _some(self, log: Log, position: int, end: int) -> tuple[list[ViewEvent], int]:
        """The next events, READ_BATCH_BYTES bytes apart from the last one, and the position after them.

        Compressed objects are decompressed for this client only.
        """
        some: list[ViewEvent] = []
        size = 0
        for number, change in log.read(position, end):
            event = self.view.event(change) if change.reader in (None, self.view) else None
            if event is not None:
                some.append(event)
                size += len(event.frame)
            if size > READ_BATCH_BYTES:
                return some, number + 1
        return some, end
