"""A history of serialised watch events, in the order (version, sequence), that any number of watchers read.

A watcher is only a position: nothing is queued for it. One that falls behind the oldest kept event has lost its
place and is cut; it resumes by its resourceVersion like any client of a kube-apiserver.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RingEvent:
    """One event. Events that an input's change caused come after those of the cloud at the same version."""

    version: int
    sequence: int
    frame: bytes
    is_bookmark: bool = False


class Ring:
    """Positions count all events ever appended; `start` is that of the oldest one kept, `end` that of the next."""

    def __init__(self, version: int) -> None:
        self._bytes = 0
        self._entries: deque[RingEvent] = deque()
        self.start = 0
        self.oldest = version
        """A client that has seen this version, or a later one, can be told all it missed."""
        self._last = (version, 0)

    @property
    def end(self) -> int:
        return self.start + len(self._entries)

    def append(self, version: int, frame: bytes, *, is_bookmark: bool = False) -> None:
        """Add the event that brought the view to `version`; one that is not newer follows what is there."""
        last_version, last_sequence = self._last
        self._last = (version, 0) if version > last_version else (last_version, last_sequence + 1)
        self._entries.append(RingEvent(*self._last, frame, is_bookmark))
        self._bytes += len(frame)

    def trim(self, max_events: int, max_bytes: int) -> None:
        """Drop the oldest events over these bounds; watchers that have not read them lose their place."""
        while len(self._entries) > 1 and (len(self._entries) > max_events or self._bytes > max_bytes):
            dropped = self._entries.popleft()
            self._bytes -= len(dropped.frame)
            self.start += 1
            lost = dropped.sequence > 0 and not dropped.is_bookmark
            self.oldest = max(self.oldest, dropped.version + lost)

    def touch(self, version: int) -> None:
        """The view is now of this version; what an input's change appends next comes after it."""
        if version > self._last[0]:
            self._last = (version, 0)

    def position_after(self, version: int) -> int:
        """Where a client goes on that has seen the cloud's events up to `version`, but maybe not all of its inputs'."""
        return self.start + bisect_left(
            self._entries, (version, 1), key=lambda entry: (entry.version, entry.sequence)
        )

    def read(self, position: int) -> list[RingEvent]:
        """All events from a position on; LookupError when the oldest of them is no longer kept."""
        if position < self.start:
            raise LookupError("fell behind the history that is kept")
        first = position - self.start
        return [self._entries[index] for index in range(first, len(self._entries))]

    def restart(self, version: int) -> None:
        """Forget all: what came before says nothing of what comes now."""
        self.start = self.end
        self._entries.clear()
        self._bytes = 0
        self.oldest = version
        self._last = (version, 0)
