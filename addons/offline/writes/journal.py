"""The journal: writes that the hub accepted in the cloud's place and has yet to replay.

It holds the latest status of each object, and events in the order in which they came, in memory and on disk. A client
waits up to DURABLE_WAIT for the disk. When the disk takes longer, the client gets its answer, and the journal writes
the entry as soon as the disk can.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from addons.offline.copies import RETRY, DiskCopies
from addons.telemetry import metrics
from kube.concurrency.pulse import Pulse
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

STATUS, EVENT = "status", "event"
"""The kinds of entries, as metrics name them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """Metadata and status of the object at `path`: `before` as the cloud has them, `after` as the node has them."""

    path: str
    kind: str
    uid: str
    before: Json
    after: Json

    @property
    def name(self) -> str:
        return f"{STATUS} {self.path}"

    def dump(self) -> bytes:
        return orjson.dumps([self.path, self.kind, self.uid, self.before, self.after])


@dataclass(frozen=True, slots=True)
class EventEntry:
    """One request that creates or patches an event, as the client sent it."""

    sequence: int
    method: str
    target: str
    content_type: str
    body: bytes

    @property
    def name(self) -> str:
        return f"{EVENT} {self.sequence:016d}"

    def dump(self) -> bytes:
        return orjson.dumps([self.sequence, self.method, self.target, self.content_type]) + b"\n" + self.body


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
        self._unwritten: dict[str, StatusEntry | EventEntry | None] = {}
        """Entries that wait for the disk, and None for those to be deleted there. The latest of a name wins."""
        self._on_disk: set[str] = set()
        """The names of which the disk may hold a row."""
        self._is_read = False
        self._written = Pulse()
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
        self._is_read = True
        self._on_disk.update(kept)
        new = self.events
        self.events = OrderedDict()
        for name, value in sorted(kept.items()):
            try:
                self._restore(_parsed(value))
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

    def check_room(self, entry: StatusEntry) -> None:
        """StatusError 503 where the journal has no room for a status."""
        others = sum(self._status_bytes.values()) - self._status_bytes.get(entry.path, 0)
        if others + len(entry.dump()) > MAX_STATUS_BYTES:
            metrics.JOURNAL_DROPPED.labels(STATUS, "no room").inc()
            raise unavailable(
                "the cloud cannot be reached, and the hub's journal has no room for this status"
            )

    def put_status(self, entry: StatusEntry) -> StatusEntry:
        """Replace the object's waiting entry and return the new one.

        `before` stays that of the waiting entry: the cloud has seen nothing since.
        """
        waiting = self.statuses.get(entry.path)
        if waiting is not None and waiting.uid == entry.uid:
            entry = replace(entry, before=waiting.before)
        self.statuses[entry.path] = entry
        self._status_bytes[entry.path] = len(entry.dump())
        self._keep(entry)
        return entry

    def put_event(self, method: str, target: str, content_type: str, body: bytes) -> EventEntry:
        entry = EventEntry(self._next_sequence, method, target, content_type, body)
        self._next_sequence += 1
        self.events[entry.sequence] = entry
        self._event_bytes += len(body)
        self._trim()
        self._keep(entry)
        return entry

    async def wait_written(self, entry: StatusEntry | EventEntry) -> None:
        """Return when an entry is on disk, or after DURABLE_WAIT."""
        try:
            async with asyncio.timeout(DURABLE_WAIT):
                while entry.name in self._unwritten:
                    await self._written.wait()
        except TimeoutError:
            logger.warning("the disk is slow: the hub answers before %s is on disk", entry.name)

    def remove(self, entry: StatusEntry | EventEntry) -> None:
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
        self._forget(entry.name)
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

    def _restore(self, entry: StatusEntry | EventEntry) -> None:
        if isinstance(entry, EventEntry):
            self.events[entry.sequence] = entry
            return
        newer = self.statuses.setdefault(entry.path, entry)
        self._status_bytes.setdefault(entry.path, len(entry.dump()))
        if newer is not entry and newer.uid == entry.uid:
            merged = self.statuses[entry.path] = replace(newer, before=entry.before)
            self._keep(merged)

    def _trim(self) -> None:
        while len(self.events) > self._max_events or self._event_bytes > MAX_EVENT_BYTES:
            _, oldest = self.events.popitem(last=False)
            self._event_bytes -= len(oldest.body)
            self._forget(oldest.name)
            metrics.JOURNAL_DROPPED.labels(EVENT, "no room").inc()

    def _keep(self, entry: StatusEntry | EventEntry) -> None:
        self._write(entry.name, entry)
        self._count()
        self.added.notify()

    def _forget(self, name: str) -> None:
        """Delete an entry from disk. One that the disk never got leaves nothing to write."""
        may_be_unread = not self._is_read and name.startswith(STATUS)
        if name in self._on_disk or may_be_unread:
            self._write(name, None)
        elif self._unwritten.pop(name, None) is not None:
            self._written.notify()

    def _count(self) -> None:
        metrics.JOURNAL_ENTRIES.set(len(self.statuses) + len(self.events))

    def _write(self, name: str, entry: StatusEntry | EventEntry | None) -> None:
        self._unwritten[name] = entry
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="journal")

    def _write_anew(self) -> None:
        self._on_disk.clear()
        entries: list[StatusEntry | EventEntry] = [*self.statuses.values(), *self.events.values()]
        for entry in entries:
            self._write(entry.name, entry)

    async def _write_all(self) -> None:
        """Write batches until nothing is left. Entries that come during a write go into the next batch."""
        while self._unwritten:
            batch = dict(self._unwritten)
            self._on_disk.update(name for name, entry in batch.items() if entry is not None)
            if not await self._copies.write(partial(self._copies.disk.put, TABLE, _rows(batch))):
                await asyncio.sleep(RETRY)
                continue
            for name, entry in batch.items():
                if entry is None:
                    self._on_disk.discard(name)
                if self._unwritten.get(name, self) is entry:
                    del self._unwritten[name]
            self._written.notify()


def _rows(entries: Mapping[str, StatusEntry | EventEntry | None]) -> dict[str, bytes | None]:
    return {name: entry.dump() if entry is not None else None for name, entry in entries.items()}


def _parsed(value: bytes) -> StatusEntry | EventEntry:
    """The entry that `dump` wrote; ValueError for anything else."""
    head, _, body = value.partition(b"\n")
    match orjson.loads(head):
        case [int(sequence), str(method), str(target), str(content_type)]:
            return EventEntry(sequence, method, target, content_type, body)
        case [str(path), str(kind), str(uid), dict(before), dict(after)]:
            return StatusEntry(path, kind, uid, before, after)
    raise ValueError("it is no entry of a journal")
