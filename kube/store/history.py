"""What a store knows of its past: its last changes in their order, and the gaps that lists have left in it.

A list brings a store from version a to b. What was written and deleted between was never seen, so a client that holds
a version between a and b may hold an object that nobody can name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kube.store.store import Change, Item, Key

MAX_CHANGES = 256
"""Changes that a history keeps: twice what a small watch cache of kube-apiserver does."""
MAX_BYTES = 1024 * 1024
"""Bytes of the objects of these changes."""
MAX_GAPS = 16
"""Gaps that a history keeps apart."""


class Entry(NamedTuple):
    """One change, and the version of the store at which it came. A change of the node's own has an older version."""

    at: int
    change: Change

    @property
    def size(self) -> int:
        item = self.change.new or self.change.last
        return len(item.kept) if item is not None else 0


class History:
    """The past of one store. A history begins anew where versions mean something else than before."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._gaps: deque[tuple[int, int]] = deque()
        self.jumps = 0
        """How many gaps there have been."""
        self._oldest = 0
        """The entries are all changes after this version."""
        self._names_gone_since = 0
        """The entries name each object that has gone after this version."""

    def begin(self, version: int) -> None:
        """Nothing is known of what came before this version."""
        self._entries.clear()
        self._gaps.clear()
        self._bytes = 0
        self._oldest = self._names_gone_since = version

    def add(self, at: int, change: Change) -> None:
        """Take a change that came when the store was at version `at`."""
        self._entries.append(Entry(at, change))
        self._bytes += self._entries[-1].size
        while len(self._entries) > MAX_CHANGES or self._bytes > MAX_BYTES:
            self._forget_oldest()

    def jump(self, before: int, after: int) -> None:
        """Note that a list brought the store from one version to another, past what was between."""
        self._gaps.append((before, after))
        self.jumps += 1
        if len(self._gaps) > MAX_GAPS:
            _, end = self._gaps.popleft()
            self._oldest, self._names_gone_since = max(self._oldest, end), max(self._names_gone_since, end)

    @property
    def newest_gap(self) -> int:
        """The version at which the last gap begins; 0 where there is none."""
        return self._gaps[-1][0] if self._gaps else 0

    def is_in_gap(self, version: int) -> bool:
        """Whether a client of this version may hold what the store has never seen."""
        return any(before < version < after for before, after in self._gaps)

    def has_all_after(self, version: int) -> bool:
        """Whether `after` gives all that a client of this version has not seen."""
        return version >= self._oldest and not self.is_in_gap(version)

    def names_all_gone_after(self, version: int) -> bool:
        """Whether `gone_after` gives all that a client of this version may hold and the cloud has no more."""
        return version >= self._names_gone_since and not self.is_in_gap(version)

    def after(self, version: int) -> Iterator[Change]:
        """The changes after a version, and those of the node's own at it."""
        for at, change in self._entries:
            if at > version or (at == version and change.is_local):
                yield change

    def gone_after(self, version: int) -> dict[Key, Item]:
        """The last state of each object that has gone after a version. It may have come again since."""
        gone: dict[Key, Item] = {}
        for change in self.after(version):
            last = change.last or change.old
            if change.new is None and last is not None:
                gone[change.key] = last.with_version(change.version)
        return gone

    def _forget_oldest(self) -> None:
        entry = self._entries.popleft()
        self._bytes -= entry.size
        # A client at the version of a change of the node's own may lack the change.
        self._oldest = max(self._oldest, entry.at + entry.change.is_local)
        if entry.change.new is None:
            self._names_gone_since = max(self._names_gone_since, entry.at)
