"""Logs a projection's changes in the order (version, sequence), for any number of views and watchers.

A view is a scope and a position in the log, a watcher is a position: the log queues nothing for either. It holds the
objects, mostly compressed, and encoded events only while they are new. A watcher that falls behind the oldest change of
its view is disconnected; its client resumes by resourceVersion, as with kube-apiserver.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kube.bounds import reached
from kube.store.store import LABEL, Item, Key
from kube.store.stream_coding import ViewEvent

LOG_MIN_CHANGES = 1000
"""The least changes that a log retains, so that a client can re-open its watch: about as many as kube-apiserver's
watch cache."""
LOG_MAX_BYTES = 16 * 1024 * 1024
"""The most bytes of objects in a log: nodes with 1 GB of memory run several projections."""
TRIM_DELAY = 0.1
"""Seconds until a log drops encoded events, and trims itself to its bounds. By then fast clients have read a burst."""


@dataclass(slots=True, eq=False)
class ProjectedChange:
    """One change as a projection shows it. `before` and `after` are None where filters hide the object.

    `last` is the object in a DELETED event. If `is_local`, the node caused the change, and the object keeps its
    version. `reader` is the only view that gets the change; None for all views.
    """

    version: int
    key: Key
    before: Item | None
    after: Item | None
    last: Item | None
    is_local: bool = False
    is_same: bool = field(default=False, init=False)
    """True if filters make the two states equal. Selectors read the unfiltered ones, and may still tell them apart."""
    reader: object = field(default=None, init=False)
    at: tuple[int, int] = field(default=(0, 0), init=False)
    """The version that a client has after the change, and a sequence number: 0 for the cloud's change of this version,
    higher for local changes, which follow it."""
    events: dict[tuple[str, str], bytes] = field(default_factory=dict, init=False)
    """The encoded events by form and type, which all views share."""
    made: dict[object, ViewEvent] = field(default_factory=dict, init=False)
    """The ViewEvents of views, for their watchers."""
    held: int = field(default=0, init=False)
    """The `size` that the log has counted. The object may be compressed later."""

    @property
    def size(self) -> int:
        """Bytes of memory of the object, as the cloud sent it and as filters changed it."""
        item = self.after or self.last
        if item is None:
            return 0
        size = item.stored.__sizeof__() + LABEL * len(item.labels)
        return size + (item.unfiltered.stored.__sizeof__() if item.unfiltered is not item else 0)


class Logs:
    """Bounds the bytes of several logs together, so that a client cannot multiply them by opening many sources."""

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.members: dict[Log, None] = {}
        self._max_bytes = max_bytes

    def trim(self) -> None:
        """Drop the oldest changes of the largest logs, at most half of a log at a time, but never its last change."""
        while (excess := self.bytes - self._max_bytes) > 0:
            longer = [log for log in self.members if len(log) > 1]
            if not longer:
                return
            largest = max(longer, key=lambda log: log.bytes)
            largest.trim(len(largest), max(largest.bytes - excess, largest.bytes // 2))
            reached("histories of views")


def _nothing(_position: int, _change: ProjectedChange) -> None:
    """Ignore a dropped change."""


class Log:
    """One log. Positions count every change ever appended: `start` is that of the oldest retained change, `end` that of
    the next one."""

    def __init__(
        self,
        version: int,
        dropped: Callable[[int, ProjectedChange], None] = _nothing,
        objects: Callable[[], int] = int,
        bound: Logs | None = None,
    ) -> None:
        """Make a log.

        `dropped` is called with the position and each change that is dropped; `objects` returns the number of the
        projection's objects. `bound` is shared by several logs, and counts this one from its first change until
        `close`.
        """
        self.bytes = 0
        self._dropped = dropped
        self._objects = objects
        self._bound = bound
        self._changes: deque[ProjectedChange] = deque()
        self._with_events: list[ProjectedChange] = []
        self._trimming: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.start = 0
        self._last = (version, 0)

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def end(self) -> int:
        return self.start + len(self._changes)

    def close(self) -> None:
        """Leave the shared bound. The last watchers read the remaining changes."""
        self._is_closed = True
        if self._trimming is not None:
            self._trimming.cancel()
        self._trimming, self._dropped, self._objects = None, _nothing, int  # no reference cycle
        self._forget_events()
        if self._bound is not None:
            self._bound.members.pop(self, None)
            self._bound.bytes -= self.bytes
            self._bound = None

    def append(self, change: ProjectedChange, version: int) -> None:
        """Append the change that brings clients to `version`. A change with an older version is ordered after the last
        one.

        Several views may append the same change, one after another.
        """
        if self._changes and self._changes[-1] is change:
            return
        last_version, last_sequence = self._last
        if change.is_local:
            # It follows all that any client may have by now.
            self._last = max(self._last, (version, 0))
            self._last = (self._last[0], self._last[1] + 1)
        else:
            self._last = (version, 0) if version > last_version else (last_version, last_sequence + 1)
        change.at, change.held = self._last, change.size
        self._changes.append(change)
        self._grow(change.held)
        self._trim_soon()

    def event(self, change: ProjectedChange, name: tuple[str, str], write: Callable[[], bytes]) -> bytes:
        """The encoded event of a change by form and type, encoded once while it is new."""
        event = change.events.get(name)
        if event is None and self._is_closed:
            return write()
        if event is None:
            event = change.events[name] = write()
            self._with_events.append(change)
            self._trim_soon()
        return event

    def trim(self, max_changes: int, max_bytes: int) -> None:
        """Drop the oldest changes beyond these bounds. Watchers that have not read them are disconnected."""
        while len(self._changes) > 1 and (len(self._changes) > max_changes or self.bytes > max_bytes):
            dropped = self._changes.popleft()
            self._grow(-dropped.held)
            self.start += 1
            self._dropped(self.start - 1, dropped)

    def position_after(self, version: int) -> int:
        """The position for a client that has seen the cloud's changes up to `version`, but perhaps not all local
        changes."""
        return self.start + bisect_left(self._changes, (version, 1), key=lambda change: change.at)

    def read(self, position: int, end: int) -> Iterator[tuple[int, ProjectedChange]]:
        """Yield the retained changes between two positions, each with its position."""
        for number in range(max(position, self.start), min(end, self.end)):
            yield number, self._changes[number - self.start]

    def restart(self, version: int) -> None:
        """Drop every change, and begin again at this version."""
        self.start = self.end
        self._changes.clear()
        self._grow(-self.bytes)
        self._last = (version, 0)

    def tidy(self) -> None:
        """Drop encoded events, and the changes beyond the bounds."""
        self._trimming = None
        self._forget_events()
        self.trim(max(LOG_MIN_CHANGES, 2 * self._objects()), LOG_MAX_BYTES)
        if self._bound is not None:
            self._bound.trim()

    def _forget_events(self) -> None:
        for change in self._with_events:
            change.events.clear()
            change.made.clear()
        self._with_events.clear()

    def _trim_soon(self) -> None:
        if self._trimming is None and not self._is_closed:
            self._trimming = asyncio.get_running_loop().call_later(TRIM_DELAY, self.tidy)

    def _grow(self, size: int) -> None:
        self.bytes += size
        if self._bound is not None:
            self._bound.members[self] = None
            self._bound.bytes += size
