"""Writes one table of the database behind its owner, who has the rows in memory and never waits for the disk.

What is put waits LINGER, so that a burst is one transaction, or is written in the loop's next turn where it is urgent.
Of each name the latest value waits alone. What a failing disk does not take stays, and is tried again after RETRY.

A batch is taken between two turns of the event loop, because an owner's change of several rows happens within one. A
task would be too early: mitmproxy's loop starts tasks eagerly, in the middle of the change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import SupportsBytes

from addons.offline.disk_access import RETRY, DiskAccess
from kube.bounds import reached
from kube.concurrency.notifier import Notifier
from kube.disk.database import Batch, DiskError, TableChanges
from kube.disk.marks import MAX_MARKS, Marks, mark_of
from kube.packed_text import StoredText

LINGER = 0.25
"""Seconds that a change waits for others. A transaction costs the disk a commit, and the clients some milliseconds in
which the disk's thread holds the interpreter. Four transactions a second are few; a longer wait would let a node that
crashes while its cloud is away start with an older state."""
MAX_UNWRITTEN = 16 * 1024 * 1024
"""Bytes of the rows of one table that wait for the disk."""
OF_A_ROW = 256
"""Bytes that a row counts besides its value: its name, and its place in the table."""


@dataclass(slots=True)
class Deleted:
    """A row that was deleted, and that the disk may still hold: what it was about, and its marks."""

    about: str = ""
    marks: set[bytes] = field(default_factory=set)


class WriteBehind:
    """The pending rows of one table, and the task that flushes them."""

    def __init__(
        self,
        access: DiskAccess,
        table: str,
        *,
        batch: Callable[[TableChanges], Batch | None] | None = None,
        whole: Callable[[], Mapping[str, StoredText]] | None = None,
        marks: Marks | None = None,
    ) -> None:
        """`batch` adds rows of other tables to a transaction, or gives None for one that must not be written yet.

        `whole` gives all rows, of a table whose owner has their values at any time. A table with `marks` is durable:
        each transaction is synced, and what a full disk cannot delete is marked as deleted. What waits of it is
        bounded by its owner.
        """
        self.is_durable = marks is not None
        self.is_read = False
        """Whether the rows of an earlier process are known."""
        self.waiting: dict[str, StoredText | None] = {}
        """The rows that wait, None for those to be deleted."""
        self.written = Notifier()
        """Notified when rows have been written, or need not be written any more."""
        self._access = access
        self._table = table
        self._batch = batch
        self._rows = whole
        self._marks = marks
        self._bytes = 0
        self._is_changed = self._is_urgent = self._is_closed = False
        self._is_whole = whole is not None
        self._on_disk: dict[str, set[bytes]] = {}
        """The rows that the disk may hold, with their marks. Empty for a table that can be written whole."""
        self._deleted: dict[str, Deleted] = {}
        self._marked: set[bytes] = set()
        """The marks in the file."""
        self._has_marks = False
        self._deletion = Notifier()
        self._next: asyncio.Handle | None = None
        """The callback that begins the next batch."""
        self._writing: asyncio.Task[None] | None = None
        access.tables[self] = None

    # -- what the owner changes -------------------------------------------------------------------------------------

    def put(self, name: str, value: StoredText | None, *, is_urgent: bool = False) -> bool:
        """Replace a row, or delete it. False where there is no room: then the former row waits on.

        There is always room to delete a row. A table that can be written whole has room, too: it is written whole.
        """
        if not self._is_whole:
            grown = self._bytes + _cost(value) - (_cost(self.waiting[name]) if name in self.waiting else 0)
            if grown > MAX_UNWRITTEN and value is not None and not self.is_durable:
                if self._rows is None:
                    return False
                reached("changes that wait for the disk")
                self._is_whole, self._bytes = True, 0
                self.waiting.clear()
            else:
                self.waiting[name], self._bytes = value, grown
        self.change(is_urgent=is_urgent)
        return True

    def delete(self, name: str, about: str = "", *, may_be_unread: bool = False) -> None:
        """Delete a row. One that the disk never got leaves nothing to write.

        `about`: of what `is_leaving` asks. `may_be_unread`: an earlier process may have written a row of this name.
        """
        if name in self._on_disk or (may_be_unread and not self.is_read):
            deleted = self._deleted.setdefault(name, Deleted())
            deleted.about = about
            deleted.marks |= self._on_disk.get(name, set())
            self.put(name, None, is_urgent=self.is_durable)
            self._deletion.notify()
        elif name in self.waiting:
            self._bytes -= _cost(self.waiting.pop(name))
            self.written.notify()

    def rewrite(self) -> None:
        """Write the whole table at once: what the disk has is unknown."""
        self._is_whole, self._bytes = True, 0
        self.waiting.clear()
        self.change()

    def forget(self) -> None:
        """Drop what waits: the owner has just read the table."""
        self._is_whole = self._is_changed = self._is_urgent = False
        self._bytes = 0
        self.waiting.clear()

    def change(self, *, is_urgent: bool = False) -> None:
        """Schedule a batch, also where no row waits for it."""
        self._is_changed = True
        self._is_urgent |= is_urgent or self._is_whole
        if self.is_writing:
            return
        lingers = isinstance(self._next, asyncio.TimerHandle)
        if self._next is None or (lingers and self._is_urgent):
            self._stop_lingering()
            loop = asyncio.get_running_loop()
            urgent = self._is_urgent
            self._next = loop.call_soon(self._begin) if urgent else loop.call_later(LINGER, self._begin)

    def finish(self) -> None:
        """Write what waits, once."""
        self._access.tables.pop(self, None)
        self._is_closed = True
        if self._is_changed:
            self.change(is_urgent=True)
        else:
            self._drop_owner()

    # -- what the disk has ------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    @property
    def is_written(self) -> bool:
        """Whether the disk has all changes."""
        return not self.is_writing and not self._is_changed

    async def settled(self) -> None:
        """Return when nothing waits any more. What lingers does not."""
        while not self.is_written:
            self._begin()
            if self._writing is not None:
                await asyncio.wait((self._writing,))

    def is_outdated(self, name: str) -> bool:
        """Whether a crash would bring back another value of a row that waits."""
        return name in self.waiting and (name in self._on_disk or not self.is_read)

    def is_leaving(self, about: str) -> bool:
        """Whether a crash would bring back a deleted row that was about this."""
        return bool(about) and any(
            deleted.about == about and not (deleted.marks and deleted.marks <= self._marked)
            for deleted in self._deleted.values()
        )

    def give_up(self, about: str) -> None:
        """Take the deleted rows about this for gone."""
        for deleted in self._deleted.values():
            if deleted.about == about:
                deleted.about = ""

    async def open(
        self, take: Callable[[Mapping[str, bytes | None]], Iterable[str]], table: str = ""
    ) -> None:
        """Give `take` the rows of an earlier process, in the order of their names, and None for a damaged one.

        The rows that it returns are deleted. `table`: where they are, if not in the table itself.
        """
        await self._access.load(self._open(take, table or self._table))

    async def _open(self, take: Callable[[Mapping[str, bytes | None]], Iterable[str]], table: str) -> None:
        rows = dict(sorted((await self._access.rows(table)).items()))
        marked = await self._read_marks()
        self.is_read = True
        for name, value in rows.items():
            self._note(name, value or b"")
        done = {name for name, value in rows.items() if value and mark_of(name, value) in marked}
        unwanted = take({name: value for name, value in rows.items() if name not in done})
        for name in (*done, *unwanted):
            if name not in self.waiting:
                self.delete(name)

    def close(self) -> Batch | None:
        """Stop writing, and return what waits for the process's last write."""
        if self._writing is not None:
            self._writing.cancel()
        self._is_changed |= bool(self.waiting)
        taken = self._take()
        return taken[1] if taken is not None else None

    # -- the task ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._stop_lingering()
        if self._is_changed and not self.is_writing:
            self._writing = asyncio.get_running_loop().create_task(
                self._write(), name=f"write behind of {self._table.replace(chr(0), ' ')}"
            )
            self._writing.add_done_callback(self._drop_owner)

    def _drop_owner(self, *_: object) -> None:
        """Forget the owner, which refers to this, once nothing is to be written any more."""
        if self._is_closed:
            self._batch, self._rows = _no_batch, dict

    def _stop_lingering(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    async def _write(self) -> None:
        """Write one batch, and further ones while they are urgent."""
        while (taken := self._take()) is not None:
            changes, batch = taken
            if await self._access.write(batch, is_durable=self.is_durable):
                self._settle(changes)
                await self._clear_marks()
                if not self._is_urgent:
                    break
                continue
            self._is_changed = True
            self._is_whole |= changes.replaces_all
            if not self._is_closed:
                await self._wait_for_disk()
            if self._is_closed:
                return  # A successor of the owner may have written the table by now.
        if self._is_changed and not self._is_closed:
            # The task is not done yet, as far as the loop knows.
            asyncio.get_running_loop().call_soon(self.change)

    def _take(self) -> tuple[TableChanges, Batch] | None:
        """All changes since the last batch; None when there are none."""
        self._stop_lingering()
        if not self._is_changed:
            return None
        if self._is_whole and self._rows is not None:
            changes = TableChanges(self._rows(), replaces_all=True)
        else:
            changes = TableChanges(dict(self.waiting))
        batch = self._batch(changes) if self._batch is not None else {self._table: changes}
        self._is_changed = self._is_urgent = False
        if batch is None:
            return None
        if self._is_whole:
            self.forget()
        for name, value in changes.rows.items():
            if value is not None:
                self._note(name, value)
        return changes, batch

    def _settle(self, changes: TableChanges) -> None:
        """Note that the disk has these changes."""
        for name, value in changes.rows.items():
            self._on_disk.pop(name, None)
            if value is not None:
                self._note(name, value)
            if changes.replaces_all or self.waiting.get(name, b"") is not value:
                continue
            self._bytes -= _cost(self.waiting.pop(name))
            self._deleted.pop(name, None)
        self.written.notify()

    def _note(self, name: str, value: SupportsBytes) -> None:
        """Note that the disk may hold a row."""
        if self._rows is None:
            marks = self._on_disk.setdefault(name, set())
            if self._marks is not None:
                marks.add(mark_of(name, bytes(value)))

    async def _wait_for_disk(self) -> None:
        """Wait RETRY. Meanwhile mark what is deleted and what becomes so: a full disk cannot delete it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY):
                while True:
                    deletion = self._deletion.wait()
                    marks = {mark for deleted in self._deleted.values() for mark in deleted.marks}
                    if marks:
                        await self._mark(marks)
                    await deletion

    # -- marks ------------------------------------------------------------------------------------------------------

    async def _clear_marks(self) -> None:
        if self._has_marks:
            await self._mark(set())

    async def _mark(self, marks: set[bytes]) -> None:
        """Write these marks to the file, and no others."""
        if self._marks is None:
            return
        if len(marks) > MAX_MARKS:
            reached("marks of the journal")
        self._has_marks = True
        if await self._access.guard(partial(_as_disk_error, partial(self._marks.write, marks))):
            self._marked, self._has_marks = marks, bool(marks)
            self.written.notify()

    async def _read_marks(self) -> set[bytes]:
        """The marks that an earlier process left; none where the disk fails."""
        marks = self._marks
        if marks is None:
            return set()

        def work() -> set[bytes]:
            marked = marks.read()
            marks.prepare()
            return marked

        marked = await self._access.guard(partial(_as_disk_error, work)) or set()
        self._has_marks = bool(marked)
        return marked


def _as_disk_error[T](work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise DiskError(str(error)) from error


def _no_batch(_: TableChanges) -> None:
    """The batch of a table without an owner."""


def _cost(value: StoredText | None) -> int:
    return OF_A_ROW + (len(value) if value is not None else 0)
