"""Writes a table of the database behind its owner, which has the rows in memory and never waits for the disk.

    put, delete, rewrite
            |
            v        FLUSH_DELAY, or the loop's next iteration            the disk took it
         pending ------------ if urgent ----------> writing --------------------------> settled
            ^                                          |
            |           RETRY; deletions are           | the disk failed
            +------------ marked meanwhile ------------+

A change lingers, so that a burst is one transaction. For each name only the latest value is pending, until the disk has
taken it (`PendingRows`). The rows that the disk may hold are tracked (`DiskRows`).

A batch is taken between two iterations of the event loop, because an owner's change of several rows happens within one.
A task would be too early: mitmproxy's loop starts tasks eagerly, in the middle of the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping

from addons.offline.tables.disk_access import RETRY, DiskAccess
from addons.offline.tables.disk_rows import DiskRows
from addons.offline.tables.pending_rows import PendingRows
from kube.concurrency.notifier import Notifier
from kube.disk.database import Batch, TableChanges
from kube.disk.marks import Marks, mark_of
from kube.packed_text import StoredText

FLUSH_DELAY = 0.25
"""Seconds that a change waits for further ones. A transaction costs the disk a commit, and the clients some
milliseconds in which the disk's thread holds the interpreter. Four transactions a second are few; after a longer wait a
node that crashes in an outage would start with an older state."""


class WriteBehind:
    """The pending rows of one table, and the task that flushes them."""

    def __init__(
        self,
        access: DiskAccess,
        table: str,
        *,
        batch: Callable[[TableChanges], Batch | None] | None = None,
        all_rows: Callable[[], Mapping[str, StoredText]] | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`batch` adds rows of other tables to a transaction, or returns None for one that must not be written yet.

        `all_rows` returns all rows, for a table whose owner always has their values. A table with `marks` is durable:
        each transaction is synced, and rows that a full disk cannot delete are marked as deleted. The owner bounds its
        pending rows.
        """
        self.is_durable = marks is not None
        self.is_read = False
        """Whether the rows of an earlier process have been loaded."""
        self.written = Notifier()
        """Notified when rows are on disk, or need not be written any more."""
        self._access = access
        self._table = table
        self._batch = batch
        self._pending = PendingRows(all_rows, is_bounded=not self.is_durable)
        self._on_disk = DiskRows(access, marks, self.written, is_tracked=all_rows is None)
        self._next: asyncio.Handle | None = None
        """The callback that begins the next batch."""
        self._writing: set[asyncio.Task[None]] = set()
        """The writing task; `finish` may run one beside it."""
        self._is_closed = False
        self._last: Batch | None = None
        """The batch that `finish` has taken."""
        access.tables[self] = None

    # -- the owner's changes ----------------------------------------------------------------------------------------

    def put(self, name: str, value: StoredText | None, *, is_urgent: bool = False) -> bool:
        """Replace a row, or delete it (None). Beyond the bound return False: then the previous row stays pending."""
        is_queued = self._pending.put(name, value)
        if is_queued:
            self.change(is_urgent=is_urgent)
        return is_queued

    def delete(self, name: str, about: str = "", *, may_be_unread: bool = False) -> None:
        """Delete a row. A row that never reached the disk needs no write.

        `about`: the subject for `is_leaving`. `may_be_unread`: an earlier process may have written a row of this name.
        """
        if name in self._on_disk or (may_be_unread and not self.is_read):
            self._on_disk.delete(name, about)
            self.put(name, None, is_urgent=self.is_durable)
        elif name in self.waiting:
            self._pending.remove(name)
            self.written.notify()

    def rewrite(self) -> None:
        """Write the complete table at once: its rows on disk are unknown."""
        self._pending.rewrite()
        self.change()

    def forget(self) -> None:
        """Drop pending changes: the owner has just read the table."""
        self._pending.forget()

    def change(self, *, is_urgent: bool = False) -> None:
        """Schedule a batch, even without a waiting row."""
        self._pending.change(is_urgent=is_urgent)
        if self.is_writing or self._is_closed:
            return
        lingers = isinstance(self._next, asyncio.TimerHandle)
        if self._next is None or (lingers and self._pending.is_urgent):
            self._stop_lingering()
            loop = asyncio.get_running_loop()
            urgent = self._pending.is_urgent
            self._next = loop.call_soon(self._begin) if urgent else loop.call_later(FLUSH_DELAY, self._begin)

    def finish(self) -> None:
        """Write the pending changes a last time, from a snapshot: the owner may drop its rows."""
        self._is_closed = True
        if (taken := self._take()) is not None:
            self._last = taken[1]
            self._run(self._write_last(*taken))
        self._drop_owner()

    # -- the disk's state -------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> Mapping[str, StoredText | None]:
        """The pending rows; None for those to be deleted."""
        return self._pending.rows

    @property
    def is_writing(self) -> bool:
        return not all(task.done() for task in self._writing)

    @property
    def is_written(self) -> bool:
        """Whether the disk has all changes."""
        return not self.is_writing and not self._pending.is_changed

    async def settled(self) -> None:
        """Wait until no change is pending. Lingering changes are written at once."""
        while not self.is_written:
            self._begin()
            if self._writing:
                await asyncio.wait(self._writing)

    def is_outdated(self, name: str) -> bool:
        """Whether a crash would bring back another value of a pending row."""
        return name in self.waiting and (name in self._on_disk or not self.is_read)

    def is_leaving(self, about: str) -> bool:
        """Whether a crash would bring back a deleted row with this subject."""
        return self._on_disk.is_leaving(about)

    def assume_deleted(self, about: str) -> None:
        """Treat the deleted rows with this subject as gone."""
        self._on_disk.assume_deleted(about)

    async def open(
        self, take: Callable[[Mapping[str, bytes | None]], Iterable[str]], table: str = ""
    ) -> None:
        """Pass the rows of an earlier process to `take`, by name, None for a damaged one.

        The rows that it returns are deleted. `table`: the table to read, if not this one.
        """
        await self._access.load(self._open(take, table or self._table))

    async def _open(self, take: Callable[[Mapping[str, bytes | None]], Iterable[str]], table: str) -> None:
        rows = dict(sorted((await self._access.rows(table)).items()))
        marked = await self._on_disk.read_marks()
        self.is_read = True
        for name, value in rows.items():
            self._on_disk.track_row(name, value or b"")
        done = {name for name, value in rows.items() if value and mark_of(name, value) in marked}
        unwanted = take({name: value for name, value in rows.items() if name not in done})
        for name in (*done, *unwanted):
            if name not in self.waiting:
                self.delete(name)

    def close(self) -> Batch | None:
        """Stop writing, and return the pending changes for the process's last write."""
        for writing in self._writing:
            writing.cancel()
        if self._is_closed:
            return self._last
        self._is_closed = True
        if self.waiting:
            self._pending.change()
        taken = self._take()
        return taken[1] if taken is not None else None

    # -- the task ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._stop_lingering()
        if self._pending.is_changed and not self.is_writing:
            self._run(self._write())

    def _run(self, writing: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(
            writing, name=f"write behind of {self._table.replace(chr(0), ' ')}"
        )
        self._writing.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        self._drop_owner()

    def _stop_lingering(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    async def _write(self) -> None:
        """Write a batch, and further ones while they are urgent."""
        while (taken := self._take()) is not None:
            changes, batch = taken
            if await self._access.write(batch, is_durable=self.is_durable):
                self._settle(changes)
                await self._on_disk.clear_marks()
                if not self._pending.is_urgent:
                    break
                continue
            self._pending.put_back(changes)
            if not self._is_closed:
                await self._on_disk.mark_deleted(RETRY)
            if self._is_closed:
                return  # A successor of the owner may have written the table by now.
        if self._pending.is_changed and not self._is_closed:
            # The task is not done yet, as far as the loop knows.
            asyncio.get_running_loop().call_soon(self.change)

    async def _write_last(self, changes: TableChanges, batch: Batch) -> None:
        if await self._access.write(batch, is_durable=self.is_durable):
            self._settle(changes)
        self._last = None  # A successor of the owner may write from now on.

    def _take(self) -> tuple[TableChanges, Batch] | None:
        """Return all changes since the last batch; None if there are none."""
        self._stop_lingering()
        if not self._pending.is_changed:
            return None
        changes = self._pending.next_batch()
        batch = self._batch(changes) if self._batch is not None else {self._table: changes}
        if batch is None:
            return None
        if changes.replaces_all:
            self._pending.forget()
        for name, value in changes.rows.items():
            if value is not None:
                self._on_disk.track_row(name, value)
        return changes, batch

    def _settle(self, changes: TableChanges) -> None:
        """Record that these changes are on disk."""
        latest = self._pending.settle(changes)
        for name, value in changes.rows.items():
            self._on_disk.settle(name, value, is_latest=name in latest)
        self.written.notify()

    def _drop_owner(self) -> None:
        """Drop the reference to the owner, which refers to this table, once no change is pending."""
        if self._is_closed and not self.is_writing:
            self._batch, self._pending.all_rows = _no_batch, None
            self._access.tables.pop(self, None)


def _no_batch(_: TableChanges) -> None:
    """Return None: a table without an owner has no batch."""
