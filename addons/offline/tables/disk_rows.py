"""The rows of a table that the disk may hold, and the marks of rows that it could not delete.

After a crash the hub finds the rows on disk again. So a deleted row counts as present until the disk has deleted it, or
a file beside the database marks it as deleted, which also works on a full disk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import SupportsBytes

from addons.offline.tables.disk_access import DiskAccess
from kube.bounds import reached
from kube.concurrency.notifier import Notifier
from kube.disk.database import DiskError
from kube.disk.marks import MAX_MARKS, Marks, mark_of


@dataclass(slots=True)
class Deleted:
    """A deleted row that the disk may still hold: its subject, and its marks."""

    about: str = ""
    marks: set[bytes] = field(default_factory=set)


class DiskRows:
    """Tracks the rows of a table that the disk may hold, with or without a file of marks."""

    def __init__(
        self, access: DiskAccess, marks: Marks | None, changed: Notifier, *, is_tracked: bool
    ) -> None:
        """Make the record. `changed` is notified when deleted rows can no longer come back.

        Rows of a table that can be rewritten are not tracked.
        """
        self._access = access
        self._is_tracked = is_tracked
        self._file = marks
        self._changed = changed
        self._rows: dict[str, set[bytes]] = {}
        """The rows that the disk may hold, with their marks."""
        self._deleted: dict[str, Deleted] = {}
        self._deletion = Notifier()
        self._marked: set[bytes] = set()
        """The marks in the file."""
        self._has_marks = False
        """Whether the file may have marks."""

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def track_row(self, name: str, value: SupportsBytes) -> None:
        """Record that the disk may hold a row: it is being written, or an earlier process wrote it."""
        if not self._is_tracked:
            return
        marks = self._rows.setdefault(name, set())
        if self._file is not None:
            marks.add(mark_of(name, bytes(value)))

    def settle(self, name: str, value: SupportsBytes | None, *, is_latest: bool) -> None:
        """Record the value of a row on disk; None for a deleted row."""
        self._rows.pop(name, None)
        if value is not None:
            self.track_row(name, value)
        if is_latest:
            self._deleted.pop(name, None)

    def delete(self, name: str, about: str) -> None:
        """Record that a row is deleted, though the disk may still hold it."""
        deleted = self._deleted.setdefault(name, Deleted())
        deleted.about = about
        deleted.marks |= self._rows.get(name, set())
        self._deletion.notify()

    def is_leaving(self, about: str) -> bool:
        """Whether a crash would bring back a deleted row with this subject."""
        return bool(about) and any(
            deleted.about == about and not (deleted.marks and deleted.marks <= self._marked)
            for deleted in self._deleted.values()
        )

    def assume_deleted(self, about: str) -> None:
        """Treat the deleted rows with this subject as gone."""
        for deleted in self._deleted.values():
            if deleted.about == about:
                deleted.about = ""

    # -- the file of marks ------------------------------------------------------------------------------------------

    async def read_marks(self) -> set[bytes]:
        """Return the marks of an earlier process; none if the disk fails."""
        file = self._file
        if file is None:
            return set()

        def work() -> set[bytes]:
            marked = file.read()
            file.prepare()
            return marked

        marked = await self._access.guard(partial(_as_disk_error, work)) or set()
        self._has_marks = bool(marked)
        return marked

    async def mark_deleted(self, seconds: float) -> None:
        """Write marks for the current deletions, and until the block ends for further ones."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    deletion = self._deletion.wait()
                    marks = {mark for deleted in self._deleted.values() for mark in deleted.marks}
                    if marks:
                        await self._mark(marks)
                    await deletion

    async def clear_marks(self) -> None:
        """Empty the file: the disk has deleted the marked rows."""
        if self._has_marks:
            await self._mark(())

    async def _mark(self, marks: Iterable[bytes]) -> None:
        """Write these marks to the file, and no others."""
        if self._file is None:
            return
        marked = set(marks)
        if len(marked) > MAX_MARKS:
            reached("marks of the journal")
        self._has_marks = True
        if await self._access.guard(partial(_as_disk_error, partial(self._file.write, marked))):
            self._marked, self._has_marks = marked, bool(marked)
            self._changed.notify()


def _as_disk_error[T](work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise DiskError(str(error)) from error
