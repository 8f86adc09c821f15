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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from addons.offline.copies import RETRY, DiskCopies
from addons.telemetry import metrics
from kube.concurrency.pulse import Pulse
from kube.disk.writer import PATIENCE
from kube.json_type import Json

TABLE = "journal"
MAX_EVENTS = 2000
"""Events that the journal holds. It drops the oldest beyond them, as a cluster drops events after an hour."""
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
        self._unwritten: dict[str, bytes | None] = {}
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
        self._next_sequence = max(self._next_sequence, max(self.events, default=-1) + 1)
        self._trim()
        self._count()
        self.added.notify()

    def put_status(self, entry: StatusEntry) -> StatusEntry:
        """Replace the object's waiting entry and return the new one.

        `before` stays that of the waiting entry: the cloud has seen nothing since.
        """
        waiting = self.statuses.get(entry.path)
        if waiting is not None and waiting.uid == entry.uid:
            entry = replace(entry, before=waiting.before)
        self.statuses[entry.path] = entry
        self._keep(entry)
        return entry

    def put_event(self, method: str, target: str, content_type: str, body: bytes) -> EventEntry:
        entry = EventEntry(self._next_sequence, method, target, content_type, body)
        self._next_sequence += 1
        self.events[entry.sequence] = entry
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
        elif self.events.pop(entry.sequence, None) is None:
            return
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
        return self._unwritten

    def _restore(self, entry: StatusEntry | EventEntry) -> None:
        if isinstance(entry, EventEntry):
            self.events[entry.sequence] = entry
            return
        newer = self.statuses.setdefault(entry.path, entry)
        if newer is not entry and newer.uid == entry.uid:
            merged = self.statuses[entry.path] = replace(newer, before=entry.before)
            self._keep(merged)

    def _trim(self) -> None:
        while len(self.events) > self._max_events:
            _, oldest = self.events.popitem(last=False)
            self._forget(oldest.name)
            metrics.JOURNAL_DROPPED.labels(EVENT, "no room").inc()

    def _keep(self, entry: StatusEntry | EventEntry) -> None:
        self._write(entry.name, entry.dump())
        self._count()
        self.added.notify()

    def _forget(self, name: str) -> None:
        self._write(name, None)

    def _count(self) -> None:
        metrics.JOURNAL_ENTRIES.set(len(self.statuses) + len(self.events))

    def _write(self, name: str, value: bytes | None) -> None:
        self._unwritten[name] = value
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="journal")

    def _write_anew(self) -> None:
        entries: list[StatusEntry | EventEntry] = [*self.statuses.values(), *self.events.values()]
        for entry in entries:
            self._write(entry.name, entry.dump())

    async def _write_all(self) -> None:
        """Write batches until nothing is left. Entries that come during a write go into the next batch."""
        while self._unwritten:
            batch = dict(self._unwritten)
            if not await self._copies.write(partial(self._copies.disk.put, TABLE, batch)):
                await asyncio.sleep(RETRY)
                continue
            for name, value in batch.items():
                if self._unwritten.get(name, b"") is value:
                    del self._unwritten[name]
            self._written.notify()


def _parsed(value: bytes) -> StatusEntry | EventEntry:
    """The entry that `dump` wrote; ValueError for anything else."""
    head, _, body = value.partition(b"\n")
    match orjson.loads(head):
        case [int(sequence), str(method), str(target), str(content_type)]:
            return EventEntry(sequence, method, target, content_type, body)
        case [str(path), str(kind), str(uid), dict(before), dict(after)]:
            return StatusEntry(path, kind, uid, before, after)
    raise ValueError("it is no entry of a journal")
