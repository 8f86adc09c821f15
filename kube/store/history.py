"""The history of a store: its last changes in order, and the gaps that lists have left in it.

A list moves a store from version a to b without the events between. The store never saw objects that were created and
deleted in between, so a client at a version between a and b may hold an object that the hub does not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

MAX_CHANGES = 256
"""The most changes in a history: twice as many as a small watch cache of kube-apiserver."""
MAX_CHANGED_BYTES = 1024 * 1024
"""The most bytes of the objects of these changes."""
MAX_PAST = 32
"""The most changes whose object names are stored on disk, which a busy source writes with each batch. Local changes at
the store's version do not count: a list may be older or newer than these, and must be resumable all the same."""
MAX_GAPS = 16
"""The most gaps in a history; beyond them the oldest two are merged."""


class Standing(Enum):
    """How far a store's objects can be trusted."""

    GOOD = "good"
    """They are trusted."""
    DOUBTED = "doubted"
    """Another store of this cloud was disproved, and this one is not verified yet: no client is served from it."""
    DISPROVED = "disproved"
    """The cloud was restored from a backup, or replaced. The next list begins another history."""


class LastSeenEvent(NamedTuple):
    """An event of the cloud that the store has seen: an object, and the version at which it was written."""

    key: tuple[str, str]
    version: int


class Versioned(Protocol):
    """An object of a store."""

    @property
    def version(self) -> int:
        """The version of its last write."""


class AppliedWrite[I](NamedTuple):
    """A write that the cloud accepted, and that the node applied to its copy before the event of it."""

    version: int
    """The version of the written object; 0 if it was deleted."""
    deleted: I | None = None
    last: int = 0
    """The last known version of the deleted object."""


class AppliedWrites[I: Versioned](dict[tuple[str, str], AppliedWrite[I]]):
    """The newest applied write of each object, until the cloud sends an event of the object, or a list."""

    @property
    def deletions(self) -> dict[tuple[str, str], I]:
        """The deleted objects. The disk still has them, for clients that return after a restart."""
        return {key: write.deleted for key, write in self.items() if write.deleted is not None}

    def deleted(self, key: tuple[str, str]) -> I | None:
        """The object under this key if a write deleted it."""
        return self[key].deleted if key in self else None

    def has(self, key: tuple[str, str], version: int) -> bool:
        """True if this write of an object was applied, or a later one. The node may have amended it since."""
        return key in self and self[key].version >= version

    def delete(self, key: tuple[str, str], item: I) -> None:
        """Record that a write deleted an object, maybe after another one that was applied."""
        self[key] = AppliedWrite(0, item, max(item.version, self[key].version if key in self else 0))

    def are_after(self, key: tuple[str, str], version: int) -> bool:
        """True if this version of an object is older than the write: a leader may be behind the cloud."""
        return key in self and 0 < version < max(self[key].version, self[key].last + 1)

    def take_ahead(
        self, version: int, held: Mapping[tuple[str, str], I], listed: dict[tuple[str, str], I]
    ) -> AppliedWrites[I]:
        """Take the writes that a list of this version lacks, and give its objects the state that is held."""
        ahead: AppliedWrites[I] = AppliedWrites()
        for key, write in list(self.items()):
            if version < write.version or (key in listed and self.are_after(key, listed[key].version)):
                ahead[key] = self.pop(key)
                listed.pop(key, None)
                if key in held:
                    listed[key] = held[key]
        return ahead

    def were_passed(self, version: int) -> bool:
        """True if a watch has passed the version of a write without an event of it: the cloud no longer has the
        write."""
        return any(0 < write.version <= version for write in self.values())


class Past(NamedTuple):
    """The part of a history that is stored on disk: which objects have changed since a version."""

    since: int
    changes: tuple[tuple[int, tuple[str, str]], ...] = ()
    """The objects, each with the lowest version at which a client has the change."""


class Recorded(Protocol):
    """The attributes of `kube.store.store.Change` that a history needs."""

    @property
    def key(self) -> tuple[str, str]:
        """The object's namespace and name."""

    @property
    def is_local(self) -> bool:
        """True if the node caused the change, not the cloud."""

    @property
    def is_deletion(self) -> bool:
        """True if the object was deleted."""

    @property
    def size(self) -> int:
        """Bytes of the object, with its labels."""


class History[C: Recorded]:
    """The history of one store. A restore of the cloud empties it, because the same versions then mean other
    states."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, C]] = deque()
        """Each change, with the lowest version at which clients have it."""
        self.newest_local = -1
        """The version that clients had when the last local change came; -1 for none."""
        self.first_local = 0
        """The version that clients had when the first local change of this process came; 0 for none."""
        self.newest_carried = 0
        """The newest object version in an event of a local change. A client whose watch stopped at that event has this
        version, and may hold newer objects."""
        self._bytes = 0
        self._gaps: deque[tuple[int, int]] = deque()
        self.gap_count = 0
        """The number of gaps ever recorded."""
        self._oldest = 0
        """The entries are all changes after this version."""
        self._names_gone_since = 0
        """The entries include each deletion after this version."""
        self._past = Past(0)
        """The changes that an earlier process saw, up to the entries."""

    def begin(self, version: int) -> None:
        """Clear the history, and begin it at this version."""
        self._entries.clear()
        self._gaps.clear()
        self._bytes, self.newest_local, self.first_local, self.newest_carried = 0, -1, 0, 0
        self._oldest = self._names_gone_since = version
        self._past = Past(version)

    def recall(self, past: Past) -> None:
        """Restore an earlier process's part of a history that has just begun."""
        self._past = past
        self._oldest, self._names_gone_since = max(self._oldest, self.newest), past.since

    def add(self, at: int, change: C) -> None:
        """Append a change that came when clients had version `at`; a local change's own version is older.

        A client at that version may lack a local change, and any change that follows it at the same version, such as a
        list that undoes it. So both count for the next version.
        """
        if change.is_local:
            self.newest_local = at
            self.first_local = self.first_local or at
        self._entries.append((at + (at == self.newest_local), change))
        self._bytes += change.size
        while len(self._entries) > MAX_CHANGES or self._bytes > MAX_CHANGED_BYTES:
            self._forget_oldest()

    def record_gap(self, before: int, after: int) -> None:
        """Record a gap: a list moved the store from `before` to `after`, and the changes in between are unknown."""
        self._gaps.append((before, after))
        self.gap_count += 1
        if len(self._gaps) > MAX_GAPS:
            (begin, _), (_, end) = self._gaps.popleft(), self._gaps.popleft()
            self._gaps.appendleft((begin, end))

    @property
    def newest(self) -> int:
        """The version from which on a client has all changes."""
        if self._entries:
            return self._entries[-1][0]
        return self._past.changes[-1][0] if self._past.changes else 0

    @property
    def newest_gap(self) -> int:
        """The version at which the last gap begins; 0 without gaps."""
        return self._gaps[-1][0] if self._gaps else 0

    def gap_after(self, version: int) -> int | None:
        """The version at which the first gap begins that ends after `version`; None if there is none."""
        return next((before for before, after in self._gaps if after > version), None)

    def is_in_gap(self, version: int) -> bool:
        """True if a client at this version may hold objects that the store has never seen."""
        return any(before < version < after for before, after in self._gaps)

    def has_all_after(self, version: int) -> bool:
        """True if `after` returns every change that a client at this version has not seen."""
        return version >= self._oldest and not self.is_in_gap(version)

    def names_all_gone_after(self, version: int) -> bool:
        """True if `after` returns every object that a client at this version may hold and the cloud has deleted."""
        return version >= self._names_gone_since and not self.is_in_gap(version)

    def names_all_changed_after(self, version: int) -> bool:
        """True if `changed_after` returns every object whose current state a client at this version has not seen."""
        return version >= self._past.since and not self.is_in_gap(version)

    def changed_after(self, version: int) -> set[tuple[str, str]]:
        """The objects that have changed after a version, or locally at it."""
        return {key for at, key in self._past.changes if at > version} | {
            change.key for change in self.after(version)
        }

    def past(self, version: int) -> Past:
        """The last changes, for the disk, which has the store at `version`. It begins after the last deletion, because
        a name alone does not identify a deleted object."""
        changes: dict[tuple[str, str], int] = {}
        since = max((self._past.since, *(after for _, after in self._gaps)))
        for at, change in reversed(self._entries):
            if change.is_deletion and change.is_local:
                continue  # the disk has the object until the cloud's own event
            if change.is_deletion or (at <= version and len(changes) >= MAX_PAST):
                return _past(max(since, at), changes)
            changes.setdefault(change.key, at)
        for at, key in reversed(self._past.changes):
            if at <= version and len(changes) >= MAX_PAST:
                return _past(max(since, at), changes)
            changes.setdefault(key, at)
        return _past(since, changes)

    def after(self, version: int) -> Iterator[C]:
        """Yield the changes that a client at this version may lack."""
        return (change for at, change in self._entries if at > version)

    def _forget_oldest(self) -> None:
        at, change = self._entries.popleft()
        self._bytes -= change.size
        self._oldest = max(self._oldest, at)
        if not change.is_local or at < self.newest:
            self._past = Past(self._oldest)
        elif not change.is_deletion and (at, change.key) not in self._past.changes:
            self._past = Past(self._past.since, (*self._past.changes, (at, change.key)))
        if change.is_deletion and not change.is_local:
            self._names_gone_since = max(self._names_gone_since, at)


def _past(since: int, changes: dict[tuple[str, str], int]) -> Past:
    """Build a Past from the latest change of each object, the newest first, without those that each client at `since`
    has."""
    return Past(since, tuple((at, key) for key, at in reversed(changes.items()) if at > since))
