"""Checks that the cloud still has the history of a store, and was not restored from a backup meanwhile.

A restored cloud reuses version numbers, so a watch from an old version succeeds although the version now means another
state. Once the restored cloud is past a store's version, the number no longer reveals this, and the watch never sends
the differences. So after each break the reflector verifies the history: by an event that the store has seen, or by the
names and versions of all objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from kube.store.history import LastSeenEvent, Standing
from kube.store.store import Item, Key, Store

FEW_OBJECTS = 50
"""The most objects whose names and versions are listed without trying other proofs: they take less than one full
object of other kinds."""
LAST_EVENT_WAIT = 10.0
"""Seconds to wait for the event that proves the history, before names and versions are listed."""


PERMANENT: Mapping[str, Key] = {"Service": ("default", "kubernetes"), "Namespace": ("", "kube-system")}
"""By kind, an object that lives as long as its cluster: its uid identifies the cluster."""


class Comparison(Enum):
    """The result of comparing a store with the cloud."""

    SAME = "same"
    """The store has the cloud's state, or a later one."""
    BEHIND = "behind"
    """Later events can make the store equal to the cloud."""
    DISPROVED = "disproved"
    """No event can make the store equal to the cloud: the store has another history."""


def compare(
    store: Store,
    expected: Mapping[Key, int],
    version: int,
    given: int,
    concerns: Callable[[Item], bool] = lambda _item: True,
) -> Comparison:
    """Compare a store with the versions of all objects that the cloud had at `version`.

    `given` is the newest version that clients had before the cloud was asked. `concerns` returns whether the request
    covered an object. Within a resource, versions increase and a watch is in their order, so up to the store's version
    nothing may be missing or different, except where the store is ahead by an applied write.
    """
    if version < given:
        return Comparison.DISPROVED
    at = store.version
    result = Comparison.SAME
    for key, expected_version in expected.items():
        item = store.get(key)
        held = item.version if item is not None else 0
        if held == expected_version or key in store.applied:
            continue
        was_overtaken = at > version and (item is None or held > version)
        if not was_overtaken:
            if expected_version <= at or held > expected_version:
                return Comparison.DISPROVED
            result = Comparison.BEHIND
    for item in store:
        is_expected = item.key in expected or item.key in store.applied
        if not is_expected and item.version <= version and concerns(item):
            if at >= version:
                return Comparison.DISPROVED
            result = Comparison.BEHIND
    return result


class HistoryDiverged(Exception):
    """The cloud has another history than the store."""


class Miscounted(Exception):
    """The cloud has another number of objects than the store. The count may be inexact, so this alone proves
    nothing."""


class HistoryVerifier:
    """Verifies the cloud's history after a break, before the store's version is trusted again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_broken = False
        """True after a break, during which the cloud may have been restored from a backup."""
        self._resumed_at = 0
        self._last_event: LastSeenEvent | None = None
        self._expected: tuple[int, Mapping[Key, int], int] | None = None
        self._counted: tuple[int, int] | None = None
        """A version of the cloud, and the number of objects at it."""
        self._is_list = False
        """True if the last event is only the newest object of a list: it does not prove that nothing was deleted
        since."""
        self._passing: set[Key] = set()
        """Objects created since the list, which must be deleted before the cloud reaches the list's version."""
        self.may_count = True
        """True if the number of objects may prove deletions."""

    @property
    def awaits_last_event(self) -> bool:
        """True if the watch must first send an event that the store has seen."""
        return self._last_event is not None

    @property
    def is_verified(self) -> bool:
        """True if the cloud's history is completely verified."""
        is_shown = self._last_event is None and self._expected is None and self._counted is None
        return not self.is_broken and is_shown and not self._passing

    @property
    def last_event_wait(self) -> float | None:
        """Seconds to wait for that event; None if none is awaited."""
        return LAST_EVENT_WAIT if self.awaits_last_event else None

    @property
    def watch_from(self) -> int:
        """The version from which to watch."""
        return self._last_event.version - 1 if self._last_event is not None else self._store.version

    def begin(self) -> None:
        """Start with a store that was just listed, so there is nothing to verify."""
        self._forget()
        self._resumed_at, self.may_count = 0, True

    def _forget(self) -> None:
        self._last_event = self._expected = self._counted = None
        self._is_list, self._passing = False, set()

    def expect_last_event(self) -> bool:
        """Let the watch begin with the store's last event, which proves the history. Return False if names are the
        cheaper proof, or needed at once because another store was disproved.

        A cloud that has this event has the same history up to it, and the store lacks nothing up to it.
        """
        self._forget()
        self._resumed_at = self._store.version
        is_cheaper = len(self._store) > FEW_OBJECTS and self._store.standing is not Standing.DOUBTED
        self._last_event = self._store.last_event if is_cheaper else None
        return self.awaits_last_event

    @property
    def can_count(self) -> bool:
        """True if, without a known event, the newest object and the number of objects are the cheaper proof."""
        is_cheaper = len(self._store) > FEW_OBJECTS and self._store.standing is not Standing.DOUBTED
        return self.may_count and is_cheaper and self._newest.version > 1

    @property
    def _newest(self) -> LastSeenEvent:
        """The newest object of the list, without applied writes: their versions in the store are not the cloud's."""
        applied = self._store.applied
        sent = (LastSeenEvent(item.key, item.version) for item in self._store if item.key not in applied)
        return max(sent, key=lambda event: event.version, default=LastSeenEvent(("", ""), 0))

    def expect_count(self, version: int, count: int) -> None:
        """Start the watch at the newest object of the list, given the number of objects that the cloud has at a
        version.

        A cloud that has this object has the same history up to it. From there to the list's version, only deletions
        can have happened; if the store missed one, it has more objects than the cloud.
        """
        self._last_event, self._is_list = self._newest, True
        self._counted = version, count

    def forget_last_event(self) -> None:
        """Give up on the event: the cloud no longer has it, or has not sent it in time."""
        self._forget()
        self._store.last_event = None
        self.may_count = False

    def compare(self, version: int, names: Mapping[Key, int], given: int) -> None:
        """Compare the names that the cloud has at a version. HistoryDiverged if no event can make the store equal.

        `given` as in `compare` of this module.
        """
        self._forget()
        result = compare(self._store, names, version, given)
        if result is Comparison.DISPROVED:
            raise HistoryDiverged(f"the cloud had other objects at version {version}, or was at {given}")
        if result is Comparison.SAME:
            self._store.set_standing(Standing.GOOD)
        else:
            self._expected = version, names, given

    def listed(self, version: int, items: Mapping[Key, Item], given: int) -> None:
        """Check a list before the store takes it, unless the list begins a history. `given` and HistoryDiverged as in
        `compare`.

        The versions of another cluster may all exceed the store's, as if all objects had been written since.
        """
        if self._store.complete and self._store.standing is not Standing.DISPROVED:
            key = PERMANENT.get(self._store.kind, ("", ""))
            held, now = self._store.get(key), items.get(key)
            if held is not None and now is not None and held.decode().uid != now.decode().uid:
                raise HistoryDiverged(f"{'/'.join(key).strip('/')} has another uid: it is another cluster")
            self.compare(version, {key: item.version for key, item in items.items()}, given)

    def event(self, key: Key, version: int, *, is_clouds: bool = True, has_gone: bool = False) -> bool:
        """Check an event of the watch before the store takes it; return whether the store may take it.

        HistoryDiverged for an event that contradicts the store. Miscounted as in `progress`. A leader may correct its
        follower with events of any version.
        """
        if self._last_event is not None:
            if self._last_event != (key, version):
                raise HistoryDiverged(
                    f"version {self._last_event.version} is not of {'/'.join(self._last_event.key)}"
                )
            self._last_event = None
            # The store has the list's objects, but the newest object of a list does not prove that all later events
            # are known. An event that the store has tells its listeners that the cloud has confirmed it.
            return not self._is_list and key not in self._store.applied
        if not is_clouds or not version or version > self._resumed_at:
            if is_clouds and version:
                self._passed(version - 1)
            return True
        if self._is_list and key in self._store.applied:
            return False
        if not self._is_list or self._store.get(key) is not None:
            raise HistoryDiverged(
                f"{'/'.join(key)} was written at version {version}, but the store has no such event"
            )
        (self._passing.discard if has_gone else self._passing.add)(key)
        return False

    def progress(self) -> None:
        """Compare again once the store has reached the version of the names or of the count.

        HistoryDiverged if names still differ; Miscounted if the count does, so that names must be compared.
        """
        if self._expected is not None and self._store.version >= self._expected[0]:
            self.compare(*self._expected)
        if self._last_event is None and self._store.version > self._resumed_at:
            self._passed(self._store.version)
        elif self._last_event is None:
            self._count(self._store.version)

    def _passed(self, version: int) -> None:
        """Check the store after the cloud has sent everything up to a version past that of its list."""
        if self._passing:
            raise HistoryDiverged(f"{'/'.join(min(self._passing))} exists, but not in the store")
        self._is_list = False
        self._count(version)

    def _count(self, version: int) -> None:
        """Compare the number of objects if the store is at the version of the cloud's count."""
        if self._counted is not None and version >= self._counted[0]:
            counted, self._counted = self._counted, None
            if counted[1] != len(self._store):
                self.may_count, self.is_broken = False, True
                raise Miscounted(f"the cloud has {counted[1]} objects at version {counted[0]}")
