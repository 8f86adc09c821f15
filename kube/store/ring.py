"""A view's history: serialised watch events in the order (version, sequence), which any number of watchers read.

A watcher is only a position: the ring queues nothing for it. A watcher that falls behind the oldest kept event is
cut; its client resumes by resourceVersion, like any client of a kube-apiserver. `kube.store.view` says what the
versions mean.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from kube.bounds import reached
from kube.packed_text import StoredText, packed

LONG_FRAME = 32 * 1024
"""Bytes of an event from which on histories pack it. A client that comes late has it unpacked in 0.1 ms."""


class Frame:
    """An event as clients get it, which the histories of views share. A long one may be packed."""

    __slots__ = ("_stored",)

    def __init__(self, frame: bytes) -> None:
        self._stored: StoredText = frame

    def __len__(self) -> int:
        return len(self._stored)

    def __bytes__(self) -> bytes:
        return bytes(self._stored)

    def __sizeof__(self) -> int:
        """Bytes of memory, with the frame."""
        return object.__sizeof__(self) + self._stored.__sizeof__()

    def pack(self) -> None:
        if isinstance(self._stored, bytes) and len(self._stored) > LONG_FRAME:
            self._stored = packed(self._stored)


class RingEvent(NamedTuple):
    """One event. `sequence` is 0 for the cloud's event of this version; local events follow it."""

    version: int
    sequence: int
    retained: Frame
    record: bytes = b""
    """The frame as a difference (`kube.differences.records`); empty where no watcher asked for differences."""

    @property
    def frame(self) -> bytes:
        return bytes(self.retained)

    @property
    def size(self) -> int:
        """Bytes of the event as its readers get it."""
        return len(self.retained) + len(self.record)


class Cursor(NamedTuple):
    """A position in a ring, and the version of a client that was sent everything before the position."""

    position: int
    version: int


class Rings:
    """Rings with one common bound, so that a client cannot multiply it by opening many views."""

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.members: dict[Ring, None] = {}
        self._max_bytes = max_bytes

    def trim(self) -> None:
        """Drop the oldest events of the largest rings, half of one at most at a time; each keeps its last event."""
        while (excess := self.bytes - self._max_bytes) > 0:
            longer = [ring for ring in self.members if len(ring) > 1]
            if not longer:
                return
            largest = max(longer, key=lambda ring: ring.bytes)
            largest.trim(len(largest), max(largest.bytes - excess, largest.bytes // 2))
            reached("histories of views")


class Ring:
    """Positions count every event ever appended: `start` is that of the oldest kept event, `end` that of the next."""

    def __init__(self, version: int, bound: Rings | None = None) -> None:
        """`bound` is the common one of several rings. This ring counts from its first event until `close`."""
        self.bytes = 0
        self._bound = bound
        self._events: deque[RingEvent] = deque()
        self._packed = 0
        """The events before this position are packed."""
        self.start = 0
        self.oldest = version
        """The ring holds every event after this version: a client that has seen it can resume."""
        self._last = (version, 0)

    def __len__(self) -> int:
        return len(self._events)

    @property
    def end(self) -> int:
        return self.start + len(self._events)

    def close(self) -> None:
        """Leave the common bound. The last watchers read the remaining events."""
        if self._bound is not None:
            self._bound.members.pop(self, None)
            self._bound.bytes -= self.bytes
            self._bound = None

    def append(self, version: int, frame: Frame, record: bytes = b"") -> None:
        """Add the event that brought the view to `version`; one that is not newer is ordered after the last."""
        last_version, last_sequence = self._last
        self._last = (version, 0) if version > last_version else (last_version, last_sequence + 1)
        event = RingEvent(*self._last, frame, record)
        self._events.append(event)
        self._grow(event.size)

    def trim(self, max_events: int, max_bytes: int) -> None:
        """Drop the oldest events over these bounds. Watchers that have not read them are cut."""
        while len(self._events) > 1 and (len(self._events) > max_events or self.bytes > max_bytes):
            dropped = self._events.popleft()
            self._grow(-dropped.size)
            self.start += 1
            # A client at this version may not have seen the local events at it.
            self.oldest = max(self.oldest, dropped.version + bool(dropped.sequence))

    def pack(self) -> None:
        """Compress the long events since the last call. Each reader decompresses its own copy from now on."""
        for event in self.read(max(self._packed, self.start), self.end):
            event.retained.pack()
        self._packed = self.end

    def touch(self, version: int) -> None:
        """The view has reached this version: events that the node causes now are ordered after it."""
        if version > self._last[0]:
            self._last = (version, 0)

    def position_after(self, version: int) -> int:
        """Where a client resumes that has seen the cloud's events up to `version`, but perhaps not all local ones."""
        return self.start + bisect_left(
            self._events, (version, 1), key=lambda event: (event.version, event.sequence)
        )

    def read(self, position: int, end: int) -> list[RingEvent]:
        """The events from a position up to another; LookupError when the oldest of them is no longer kept."""
        if position < self.start:
            raise LookupError("fell behind the history that is kept")
        return [self._events[index] for index in range(position - self.start, end - self.start)]

    def begin(self, version: int) -> None:
        """Let no client of an earlier version than this resume: it may lack what the node changed before."""
        self.oldest = max(self.oldest, version)

    def restart(self, version: int) -> None:
        """Forget every event. History begins at this version, and no client resumes from an earlier one."""
        self.start = self.end
        self._events.clear()
        self._grow(-self.bytes)
        self.oldest = version
        self._last = (version, 0)

    def _grow(self, size: int) -> None:
        self.bytes += size
        if self._bound is not None:
            self._bound.members[self] = None
            self._bound.bytes += size
