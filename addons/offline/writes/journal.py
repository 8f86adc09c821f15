"""The journal: writes that the hub accepted in the cloud's place and has not replayed yet.

It holds the latest status of each object, and events in the order of their arrival, in memory and on disk. A client
waits up to DURABLE_WAIT for the disk. If the disk takes longer, the client gets its answer, and the journal writes the
entry as soon as the disk can.

An entry that is replayed, or that a newer one replaces, must leave the disk before a newer write of its object reaches
the cloud: otherwise a hub that is killed in between would replay the older over the newer. `is_pending` and
`wait_forgotten` ensure that, and `kube.disk.marks` if the disk is full.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.offline.writes.journal_entries import EVENT, STATUS, EventEntry, JournalEntry, StatusEntry, parsed
from addons.telemetry import metrics
from kube.concurrency.notifier import Notifier
from kube.disk.marks import Marks
from kube.disk.rows import table_of
from kube.errors import unavailable
from kube.json_type import Json

TABLE = table_of("journal")
MAX_EVENTS = 2000
"""Events that the journal holds. It drops the oldest beyond them, as a cluster drops events after an hour."""
MAX_USER_EVENTS = 100
"""Events of one user with a token that the journal holds. They never displace the node's own."""
MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of the events that the journal holds; beyond them the oldest are dropped too."""
MAX_STATUS_BYTES = 16 * 1024 * 1024
"""Bytes of all statuses as written to disk: a node and 110 pods have some 2 MB. Beyond them writes are refused."""
DURABLE_WAIT = 1.0
"""Seconds that a client waits for the disk."""

logger = logging.getLogger(__name__)


class Journal:
    """The entries that wait for the cloud. `added` is notified of each new one."""

    def __init__(self, access: DiskAccess) -> None:
        self.statuses: dict[str, StatusEntry] = {}
        """Pending statuses by the object's path."""
        self.events: OrderedDict[int, EventEntry] = OrderedDict()
        self.added = Notifier()
        self.on_status: list[Callable[[StatusEntry], None]] = []
        """Called with each new status, and those of an earlier process."""
        # Wall time, so that events of this process come after those of an earlier one that are still unread on disk.
        self._next_sequence = time.time_ns()
        self._event_bytes = 0
        self._status_bytes: dict[str, int] = {}
        """The size of each status on disk, by path."""
        self._rows = WriteBehind(access, TABLE, marks=Marks(access.disk.folder.with_name("journal.done")))
        access.on_loss.append(self._write_anew)

    async def open(self) -> None:
        """Load the entries of an earlier process. A slow disk delivers them later."""
        await self._rows.open(self._take)

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        """Load the entries of an earlier process; return the names of unreadable ones."""
        unreadable = []
        new = self.events
        self.events = OrderedDict()
        for name, value in rows.items():
            try:
                self._restore(parsed(value or b""))
            except ValueError as error:
                logger.error("dropping the journal's entry %s, which cannot be read: %s", name, error)
                metrics.JOURNAL_DROPPED.labels(name.partition(" ")[0], "unreadable").inc()
                unreadable.append(name)
        self.events.update(new)
        self._event_bytes = sum(len(event.body) for event in self.events.values())
        self._next_sequence = max(self._next_sequence, max(self.events, default=-1) + 1)
        self._trim()
        self._count()
        self.added.notify()
        return unreadable

    def check_capacity(self, entry: StatusEntry) -> None:
        """Raise StatusError 503 if the journal has no space for a status."""
        others = sum(self._status_bytes.values()) - self._status_bytes.get(entry.path, 0)
        if others + len(entry.dump()) > MAX_STATUS_BYTES:
            metrics.JOURNAL_DROPPED.labels(STATUS, "no room").inc()
            raise unavailable(
                "the cloud cannot be reached, and the hub's journal has no room for this status"
            )

    def put_status(
        self, entry: StatusEntry, *, was_sent: bool = False, patch: Json | None = None
    ) -> StatusEntry:
        """Replace the object's pending entry and return the new one.

        `was_sent`: the cloud may already have this one. `patch`: the client's patch. `before` and `sent` stay those of
        the pending entry: the cloud has seen no other since.
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
        self._notify(entry)
        return entry

    def put_event(
        self, method: str, target: str, content_type: str, body: bytes, user: str = ""
    ) -> EventEntry:
        entry = EventEntry.of(self._next_sequence, method, target, content_type, body, user)
        self._next_sequence += 1
        self.events[entry.sequence] = entry
        self._event_bytes += len(body)
        self._trim(user)
        self._keep(entry)
        return entry

    async def wait_written(self, entry: JournalEntry) -> None:
        """Return when an entry is on disk, or after DURABLE_WAIT."""
        try:
            async with asyncio.timeout(DURABLE_WAIT):
                while entry.name in self._rows.waiting:
                    await self._rows.written.wait()
        except TimeoutError:
            what = entry.path or entry.name
            logger.warning("the disk is slow: the hub answers before a write of %s is on disk", what)

    def sending(self, entry: StatusEntry) -> StatusEntry:
        """Mark a journaled status as being sent, and return it with the mark.

        The mark reaches the disk with the next entry for the object: after a restart any entry may have been sent.
        """
        sent = self.statuses[entry.path] = entry.as_sent()
        return sent

    def events_of(self, path: str) -> list[EventEntry]:
        """Return the pending requests for one event, in their order."""
        return [event for event in self.events.values() if event.path == path]

    def is_pending(self, path: str) -> bool:
        """Whether a newer write of this object must wait: an older one waits for the cloud, or is on disk."""
        return path in self.statuses or bool(self.events_of(path)) or self._rows.is_leaving(path)

    async def wait_forgotten(self, path: str) -> None:
        """Return when the disk has no older write of an object than the journal, or after DURABLE_WAIT."""
        status = f"{STATUS} {path}"
        try:
            async with asyncio.timeout(DURABLE_WAIT):
                while self._rows.is_leaving(path) or self._rows.is_outdated(status):
                    await self._rows.written.wait()
        except TimeoutError:
            logger.warning("the disk keeps an older write of %s: after a crash it is replayed again", path)
            self._rows.assume_deleted(path)

    def remove(self, entry: JournalEntry) -> None:
        """Remove an entry that the cloud has accepted or refused. A newer entry for the same object stays."""
        if isinstance(entry, StatusEntry):
            if self.statuses.get(entry.path) is not entry:
                return
            del self.statuses[entry.path]
            self._status_bytes.pop(entry.path, None)
        elif self.events.pop(entry.sequence, None) is None:
            return
        else:
            self._event_bytes -= len(entry.body)
        self._forget(entry)
        self._count()

    def describe(self) -> dict[str, Any]:
        """Return the pending entries by name, for the debug page, without their contents."""
        return {
            "statuses": sorted(self.statuses),
            "events": len(self.events),
            "unwritten": len(self._rows.waiting),
        }

    def _restore(self, entry: JournalEntry) -> None:
        if isinstance(entry, EventEntry):
            self.events[entry.sequence] = entry
            return
        entry = entry.as_sent()
        newer = self.statuses.setdefault(entry.path, entry)
        self._notify(newer)
        self._status_bytes.setdefault(entry.path, len(entry.dump()))
        if newer is not entry and newer.uid == entry.uid:
            merged = replace(newer, before=entry.before, sent=entry.sent)
            if newer.sent is not None:
                merged = merged.as_sent()
            self.statuses[entry.path] = merged
            self._keep(merged)

    def _notify(self, entry: StatusEntry) -> None:
        for listener in self.on_status:
            listener(entry)

    def _trim(self, user: str = "") -> None:
        """Drop the oldest events beyond the bounds, of users with tokens first. `user` has just added one."""
        if (
            user
            and len(own := [event for event in self.events.values() if event.user == user]) > MAX_USER_EVENTS
        ):
            self._push_out(own[0])
        while len(self.events) > MAX_EVENTS or self._event_bytes > MAX_EVENT_BYTES:
            events = self.events.values()
            self._push_out(next((event for event in events if event.user), None) or next(iter(events)))

    def _push_out(self, event: EventEntry) -> None:
        del self.events[event.sequence]
        self._event_bytes -= len(event.body)
        self._forget(event)
        metrics.JOURNAL_DROPPED.labels(EVENT, "no room").inc()

    def _keep(self, entry: JournalEntry) -> None:
        self._write(entry)
        self._count()
        self.added.notify()

    def _forget(self, entry: JournalEntry) -> None:
        self._rows.delete(entry.name, entry.path, may_be_unread=isinstance(entry, StatusEntry))

    def _count(self) -> None:
        metrics.JOURNAL_ENTRIES.set(len(self.statuses) + len(self.events))

    def _write(self, entry: JournalEntry) -> None:
        self._rows.put(entry.name, entry.dump(), is_urgent=True)

    def _write_anew(self) -> None:
        for status in self.statuses.values():
            self._write(status)
        for event in self.events.values():
            self._write(event)
