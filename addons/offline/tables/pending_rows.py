"""The changes of a table that wait for the disk, within a bound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kube.bounds import reached
from kube.disk.database import TableChanges
from kube.packed_text import StoredText

MAX_UNWRITTEN = 16 * 1024 * 1024
"""Bytes of the rows of one table that wait for the disk."""
ROW_OVERHEAD = 256
"""Bytes that a row counts in addition to its value: its name, and its entry in the table."""


class PendingRows:
    """The latest value of each changed row, None for a deleted one; or the complete table."""

    def __init__(self, all_rows: Callable[[], Mapping[str, StoredText]] | None, *, is_bounded: bool) -> None:
        """`all_rows` returns all rows, for a table whose owner always has their values."""
        self.rows: dict[str, StoredText | None] = {}
        self.is_changed = False
        """Whether a batch is due, even without a waiting row."""
        self.is_urgent = False
        self.all_rows = all_rows
        self._replaces_all = all_rows is not None
        self._is_bounded = is_bounded
        self._bytes = 0

    def put(self, name: str, value: StoredText | None) -> bool:
        """Replace a row, or delete it (None). Beyond the bound return False: then the previous row stays pending.

        A deletion always succeeds, and so does any row of a table that can be rewritten.
        """
        if self._replaces_all:
            return True
        grown = self._bytes + _cost(value) - (_cost(self.rows[name]) if name in self.rows else 0)
        if grown > MAX_UNWRITTEN and value is not None and self._is_bounded:
            if self.all_rows is None:
                return False
            reached("changes that wait for the disk")
            self.rewrite()
        else:
            self.rows[name], self._bytes = value, grown
        return True

    def remove(self, name: str) -> None:
        """Drop a row's pending change."""
        self._bytes -= _cost(self.rows.pop(name))

    def rewrite(self) -> None:
        """Queue the complete table."""
        self._clear(replaces_all=True)

    def forget(self) -> None:
        """Drop all pending changes."""
        self._clear(replaces_all=False)
        self.is_changed = self.is_urgent = False

    def change(self, *, is_urgent: bool = False) -> None:
        """Schedule a batch. A batch of the complete table is urgent."""
        self.is_changed = True
        self.is_urgent |= is_urgent or self._replaces_all

    def next_batch(self) -> TableChanges:
        """Return the changes of a batch. Rows stay pending until they are on disk, because an owner may read them."""
        self.is_changed = self.is_urgent = False
        if self._replaces_all and self.all_rows is not None:
            return TableChanges(self.all_rows(), replaces_all=True)
        return TableChanges(dict(self.rows))

    def put_back(self, changes: TableChanges) -> None:
        """Queue the changes of a failed batch again."""
        self.is_changed = True
        self._replaces_all |= changes.replaces_all

    def settle(self, changes: TableChanges) -> Collection[str]:
        """Remove the rows that are now on disk, unless they have changed since; return their names."""
        settled = {
            name
            for name, value in changes.rows.items()
            if not changes.replaces_all and self.rows.get(name, b"") is value
        }
        for name in settled:
            self.remove(name)
        return settled

    def _clear(self, *, replaces_all: bool) -> None:
        self._replaces_all = replaces_all
        self._bytes = 0
        self.rows.clear()


def _cost(value: StoredText | None) -> int:
    return ROW_OVERHEAD + (len(value) if value is not None else 0)
