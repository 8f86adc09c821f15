"""The journal: writes that the hub accepted in the cloud's place and has yet to replay.

It holds the latest status of each object, and events in the order in which they came, in memory and on disk. A client
waits up to DURABLE_WAIT for the disk. When the disk takes longer, the client gets its answer, and the journal writes
the entry as soon as the disk can.

An entry that is done must leave the disk before a newer write of its object reaches the cloud: a hub that is killed
between would replay the older over the newer. `is_pending` and `wait_forgotten` see to that, and `kube.disk.marks`
where the disk is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from addons.offline.copies import RETRY, DiskCopies
from addons.offline.writes.journal_entries import EVENT, STATUS, EventEntry, JournalEntry, StatusEntry, parsed
from addons.telemetry import metrics
from kube.bounds import reached
from kube.concurrency.pulse import Pulse
from kube.disk.database import DiskError
from kube.disk.marks import MAX_MARKS, Marks, mark_of
from kube.disk.writer import PATIENCE
from kube.errors import unavailable
from kube.json_type import Json

TABLE = "journal"
MAX_EVENTS = 2000
"""Events that the journal holds. It drops the oldest beyond them, as a cluster drops events after an hour."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of the events that the journal holds; the oldest go beyond them too."""
MAX_STATUS_BYTES = 16 * 1024 * 1024
"""Bytes of all statuses as written to disk: a node and 110 pods come to some 2 MB. Beyond them, writes are refused."""
DURABLE_WAIT = 1.0
"""Seconds that a client waits for the disk."""

logger = logging.getLogger(__name__)


class Journal:
    """The entries that wait for the cloud. `added` is notified when one comes."""

    def __init__(self, copies: DiskCopies, max_events: int = MAX_EVENTS) -> None:
        self._copies = copies
        self._max_events = max_events
        self.statuses: dict[str, StatusEntry] = {}
        """By the object's path."""
        self.events: OrderedDict[int, EventEntry] = OrderedDict()
        self.added = Pulse()
        # Wall time, so that events of this process come after those of an earlier one that are still unread on disk.
        self._next_sequence = time.time_ns()
        self._event_bytes = 0
        self._status_bytes: dict[str, int] = {}
        """The size of each status on disk, by path."""
        self._unwritten: dict[str, JournalEntry | None] = {}
        """Entries that wait for the disk, and None for those to be deleted there. The latest of a name wins."""
        self._on_disk: dict[str, set[bytes]] = {}
        """The marks of the rows that the disk may hold, by name."""
        self._fading: dict[str, str] = {}
        """The names of done entries that the disk may still replay, and the paths of their objects."""
        self._done: dict[str, set[bytes]] = {}
        """The marks of done rows that the disk may hold, by name."""
        self._marks = Marks(copies.disk.folder.with_name("journal.done"))
        self._is_marked = False
        """Whether the file has marks."""
        self._is_read = False
        self._written = Pulse()
        """Notified when entries have been written, or have left the disk."""
        self._forgotten = Pulse()
        """Notified when an entry is to leave the disk."""
        self._writing: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        copies.on_loss.append(self._write_anew)

    async def open(self) -> None:
        """Read the entries that an earlier process left. Wait PATIENCE at most: a slow disk delivers them later."""
        self._opening = asyncio.create_task(self._read(), name="journal from disk")
        await asyncio.wait([self._opening], timeout=PATIENCE)

    async def _read(self) -> None:
        disk = self._copies.disk
        kept = await self._copies.guard(lambda: disk.values(TABLE))
        while kept is None:
            await asyncio.sleep(RETRY)
            kept = await self._copies.guard(lambda: disk.values(TABLE))
        done = await self._marked()
        self._is_read = True
        new = self.events
        self.events = OrderedDict()
        for name, value in sorted(kept.items()):
            mark = mark_of(name, value)
            self._on_disk.setdefault(name, set()).add(mark)
            if mark in done:
                self._forget(name)
                continue
            try:
                self._restore(parsed(value))
            except ValueError as error:
                logger.error("dropping the journal's entry %s, which cannot be read: %s", name, error)
                metrics.JOURNAL_DROPPED.labels(name.partition(" ")[0], "unreadable").inc()
                self._forget(name)
        self.events.update(new)
        self._event_bytes = sum(len(event.body) for event in self.events.values())
        self._next_sequence = max(self._next_sequence, max(self.events, default=-1) + 1)
        self._trim()
        self._count()
        self.added.notify()

    async def _marked(self) -> set[bytes]:
        """The marks that an earlier process left; none where the disk fails."""

        def work() -> set[bytes]:
            found = self._marks.read()
            self._marks.prepare()
            return found

        found = await self._copies.guard(partial(_as_disk_error, work)) or set()
        self._is_marked = bool(found)
        return found

    def check_room(self, entry: StatusEntry) -> None:
        """StatusError 503 where the journal has no room for a status."""
        others = sum(self._status_bytes.values()) - self._status_bytes.get(entry.path, 0)
        if others + len(entry.dump()) > MAX_STATUS_BYTES:
            metrics.JOURNAL_DROPPED.labels(STATUS, "no room").inc()
            raise unavailable(
                "the cloud cannot be reached, and the hub's journal has no room for this status"
            )

    def put_status(
        self, entry: StatusEntry, *, was_sent: bool = False, patch: Json | None = None
    ) -> StatusEntry:
        """Replace the object's waiting entry and return the new one.

        `was_sent`: the cloud may have this one already. `patch`: what the client sent. `before` and `sent` stay those
        of the waiting entry: the cloud has seen nothing else since.
        """
        waiting = self.statuses.get(entry.path)
        if waiting is not None and waiting.uid == entry.uid:
            entry = replace(entry, before=waiting.before, sent=waiting.sent)
        if patch is not None:
            entry = entry.asked_by(patch)
        if was_sent:
            entry = entry.as_sent()
        self.statuses[entry.path] = entry
        self._status_bytes[entry.path] = len(entry.dump())
        self._keep(entry)
        return entry

    def put_event(self, method: str, target: str, content_type: str, body: bytes) -> EventEntry:
        entry = EventEntry.of(self._next_sequence, method, target, content_type, body)
        self._next_sequence += 1
        self.events[entry.sequence] = entry
        self._event_bytes += len(body)
        self._trim()
        self._keep(entry)
        return entry

    async def wait_written(self, entry: JournalEntry) -> None:
        """Return when an entry is on disk, or after DURABLE_WAIT."""
        try:
            async with asyncio.timeout(DURABLE_WAIT):
                while entry.name in self._unwritten:
                    await self._written.wait()
        except TimeoutError:
            logger.warning("the disk is slow: the hub answers before %s is on disk", entry.name)

    def sending(self, entry: StatusEntry) -> StatusEntry:
        """Note that a waiting status goes out now, and return it with that noted.

        The disk learns of it with the next entry for the object: after a restart any entry may have been sent.
        """
        sent = self.statuses[entry.path] = entry.as_sent()
        return sent

    def events_of(self, path: str) -> list[EventEntry]:
        """The requests for one event that wait, in their order."""
        return [event for event in self.events.values() if event.path == path]

    def is_pending(self, path: str) -> bool:
        """Whether a newer write of this object must wait: an older one waits for the cloud, or is on disk."""
        return path in self.statuses or bool(self.events_of(path)) or path in self._fading.values()

    async def wait_forgotten(self, path: str) -> None:
        """Return when no done entry for an object is on disk any more, or after DURABLE_WAIT."""
        try:
            async with asyncio.timeout(DURABLE_WAIT):
                while path in self._fading.values():
                    await self._written.wait()
        except TimeoutError:
            logger.warning("the disk keeps what was replayed of %s: after a crash it is replayed again", path)
            self._fading = {name: each for name, each in self._fading.items() if each != path}

    def remove(self, entry: JournalEntry) -> None:
        """Remove an entry that the cloud has taken or refused. A newer entry for the same object stays."""
        if isinstance(entry, StatusEntry):
            if self.statuses.get(entry.path) is not entry:
                return
            del self.statuses[entry.path]
            self._status_bytes.pop(entry.path, None)
        elif self.events.pop(entry.sequence, None) is None:
            return
        else:
            self._event_bytes -= len(entry.body)
        self._forget(entry.name, entry.path)
        self._count()

    def describe(self) -> dict[str, Any]:
        """The waiting entries by name, for the debug page. Their contents stay private."""
        return {
            "statuses": sorted(self.statuses),
            "events": len(self.events),
            "unwritten": len(self._unwritten),
        }

    def close(self) -> dict[str, bytes | None]:
        """Stop writing, and return what is not on disk yet for the process's last write."""
        for task in (self._opening, self._writing):
            if task is not None:
                task.cancel()
        return _rows(self._unwritten)

    def _restore(self, entry: JournalEntry) -> None:
        if isinstance(entry, EventEntry):
            self.events[entry.sequence] = entry
            return
        entry = entry.as_sent()
        newer = self.statuses.setdefault(entry.path, entry)
        self._status_bytes.setdefault(entry.path, len(entry.dump()))
        if newer is not entry and newer.uid == entry.uid:
            merged = replace(newer, before=entry.before, sent=entry.sent)
            if newer.sent is not None:
                merged = merged.as_sent()
            self.statuses[entry.path] = merged
            self._keep(merged)

    def _trim(self) -> None:
        while len(self.events) > self._max_events or self._event_bytes > MAX_EVENT_BYTES:
            _, oldest = self.events.popitem(last=False)
            self._event_bytes -= len(oldest.body)
            self._forget(oldest.name, oldest.path)
            metrics.JOURNAL_DROPPED.labels(EVENT, "no room").inc()

    def _keep(self, entry: JournalEntry) -> None:
        self._write(entry.name, entry)
        self._count()
        self.added.notify()

    def _forget(self, name: str, path: str = "") -> None:
        """Delete an entry from disk. One that the disk never got leaves nothing to write."""
        may_be_unread = not self._is_read and name.startswith(STATUS)
        if name in self._on_disk or may_be_unread:
            if path:
                self._fading[name] = path
            self._done.setdefault(name, set()).update(self._on_disk.get(name, ()))
            self._write(name, None)
            self._forgotten.notify()
        elif self._unwritten.pop(name, None) is not None:
            self._written.notify()

    def _count(self) -> None:
        metrics.JOURNAL_ENTRIES.set(len(self.statuses) + len(self.events))

    def _write(self, name: str, entry: JournalEntry | None) -> None:
        self._unwritten[name] = entry
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="journal")

    def _write_anew(self) -> None:
        entries: list[JournalEntry] = [*self.statuses.values(), *self.events.values()]
        for entry in entries:
            self._write(entry.name, entry)

    async def _write_all(self) -> None:
        """Write batches until nothing is left. Entries that come during a write go into the next batch."""
        while self._unwritten:
            batch = dict(self._unwritten)
            rows = _rows(batch)
            for name, value in rows.items():
                if value is not None:
                    self._on_disk.setdefault(name, set()).add(mark_of(name, value))
            if not await self._copies.write(partial(self._copies.disk.put, TABLE, rows, is_durable=True)):
                await self._wait_for_disk()
                continue
            for name, value in rows.items():
                if value is None:
                    self._on_disk.pop(name, None)
                else:
                    self._on_disk[name] = {mark_of(name, value)}
                self._done.pop(name, None)
                if self._unwritten.get(name, self) is batch[name]:
                    del self._unwritten[name]
                    self._fading.pop(name, None)
            if self._is_marked:
                await self._mark(set())
            self._written.notify()

    async def _wait_for_disk(self) -> None:
        """Wait RETRY, and mark what is done and cannot be deleted, also what becomes done meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY):
                while True:
                    forgotten = self._forgotten.wait()
                    done = {name for name, marks in self._done.items() if marks}
                    if done and await self._mark({mark for name in done for mark in self._done[name]}):
                        for name in done:
                            self._fading.pop(name, None)
                        self._written.notify()
                    await forgotten

    async def _mark(self, marks: set[bytes]) -> bool:
        """Whether the marks are on disk now, and no others."""

        def work() -> bool:
            self._marks.write(marks)
            return True

        if len(marks) > MAX_MARKS:
            reached("marks of the journal")
        self._is_marked = True
        is_written = bool(await self._copies.guard(partial(_as_disk_error, work)))
        self._is_marked = not is_written or bool(marks)
        return is_written


def _as_disk_error[T](work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise DiskError(str(error)) from error


def _rows(entries: Mapping[str, JournalEntry | None]) -> dict[str, bytes | None]:
    return {name: entry.dump() if entry is not None else None for name, entry in entries.items()}
