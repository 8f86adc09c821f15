"""Writes that the node took in the cloud's place, until the cloud has them: each object's latest status, and events.

Kept in memory and on disk. A writer waits for the disk, but not for long: a disk that stands still costs no client
more than that, and what is not written yet is written later.
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

from addons.offline.copies import PATIENCE, RETRY, Copies
from addons.telemetry import metrics
from kube.concurrency.pulse import Pulse
from kube.json_type import Json

TABLE = "journal"
MAX_EVENTS = 2000
"""Events that wait; past them the oldest go, as in a cluster, which keeps events for an hour."""
DURABLE_WAIT = 1.0
"""Seconds a client waits for the disk."""

STATUS, EVENT = "status", "event"
"""Kinds of entries, as metrics name them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """One object's metadata and status, as the cloud had them and as they are now. `path` is the object's."""

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
    """One request about an event, as it came."""

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
    """The entries, in the order in which they came."""

    def __init__(self, copies: Copies, max_events: int = MAX_EVENTS) -> None:
        self._copies = copies
        self._max_events = max_events
        self.statuses: dict[str, StatusEntry] = {}
        """By path."""
        self.events: OrderedDict[int, EventEntry] = OrderedDict()
        self.added = Pulse()
        # After whatever an earlier process left, also before that has been read.
        self._next = time.time_ns()
        self._unwritten: dict[str, bytes | None] = {}
        self._written = Pulse()
        self._writing: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        copies.on_loss.append(self._write_anew)

    async def open(self) -> None:
        """Take up what an earlier process left; where the disk is slow, as soon as it says so."""
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
                logger.error("the journal's entry %s cannot be read (%s) and is dropped", name, error)
                metrics.JOURNAL_DROPPED.labels(name.partition(" ")[0], "unreadable").inc()
                self._forget(name)
        self.events.update(new)
        self._next = max(self._next, max(self.events, default=-1) + 1)
        self._trim()
        self._count()
        self.added.notify()

    def put_status(self, entry: StatusEntry) -> StatusEntry:
        """Take the place of what waited for the object; the entry that waits now."""
        waiting = self.statuses.get(entry.path)
        if waiting is not None and waiting.uid == entry.uid:
            entry = replace(entry, before=waiting.before)
        self.statuses[entry.path] = entry
        self._keep(entry)
        return entry

    def put_event(self, method: str, target: str, content_type: str, body: bytes) -> EventEntry:
        entry = EventEntry(self._next, method, target, content_type, body)
        self._next += 1
        self.events[entry.sequence] = entry
        self._trim()
        self._keep(entry)
        return entry

    async def written(self, entry: StatusEntry | EventEntry) -> None:
        """Return when an entry is on disk, but within DURABLE_WAIT."""
        try:
            async with asyncio.timeout(DURABLE_WAIT):
                while entry.name in self._unwritten:
                    await self._written.wait()
        except TimeoutError:
            logger.warning("the disk is slow: %s is answered before it is kept", entry.name)

    def done(self, entry: StatusEntry | EventEntry) -> None:
        """The cloud has it, or never will. What came for the same object since stays."""
        if isinstance(entry, StatusEntry):
            if self.statuses.get(entry.path) is not entry:
                return
            del self.statuses[entry.path]
        elif self.events.pop(entry.sequence, None) is None:
            return
        self._forget(entry.name)
        self._count()

    def describe(self) -> dict[str, Any]:
        """For people: what waits, without what is in it."""
        return {
            "statuses": sorted(self.statuses),
            "events": len(self.events),
            "unwritten": len(self._unwritten),
        }

    def take(self) -> dict[str, bytes | None]:
        """What is not on disk yet, for whoever writes it at the end."""
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
        """What came while an earlier batch was written is the next one."""
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
    """What `dump` gave; ValueError for anything else."""
    head, _, body = value.partition(b"\n")
    match orjson.loads(head):
        case [int(sequence), str(method), str(target), str(content_type)]:
            return EventEntry(sequence, method, target, content_type, body)
        case [str(path), str(kind), str(uid), dict(before), dict(after)]:
            return StatusEntry(path, kind, uid, before, after)
    raise ValueError("it is no entry")
