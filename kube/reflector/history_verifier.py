"""Checks whether the cloud still has the history of a store, or was restored from a backup meanwhile.

A restored cloud counts its versions up again, and accepts a watch from a version that now means something else. Once it
has been written past a store's version, the number alone does not show it, and a watch from that version never brings
the differences. So after each break a reflector has the cloud prove its history: by an event that the store has seen,
or by names and versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from kube.store.history import LastSeenEvent, Standing
from kube.store.store import Item, Key, Store

FEW = 50
"""The names and versions of up to so many objects are listed: they take less than one full object of other kinds."""
LAST_EVENT_WAIT = 10.0
"""Seconds for the event that proves the cloud's history. After them names and versions are asked for."""


PERMANENT: Mapping[str, Key] = {"Service": ("default", "kubernetes"), "Namespace": ("", "kube-system")}
"""By kind, an object that each cluster has from its beginning to its end: its uid tells one cluster from another."""


class Comparison(Enum):
    """The verdict of the cloud's state on a store."""

    SAME = "same"
    """The store has the cloud's state, or a later one."""
    BEHIND = "behind"
    """Events that are still to come can make the store equal."""
    DISPROVED = "disproved"
    """No event can: the store is of another history."""


def compare(
    store: Store,
    expected: Mapping[Key, int],
    version: int,
    given: int,
    concerns: Callable[[Item], bool] = lambda _item: True,
) -> Comparison:
    """Compare a store with the versions of all objects that the cloud had at `version`.

    `given` is the newest version that clients had been given before the cloud was asked. `concerns` returns whether an
    object of the store is among the requested ones. Versions count up in one resource, and a watch is in their order:
    up to the store's version nothing can be missing or wrong.
    """
    if version < given:
        return Comparison.DISPROVED
    at = store.version
    result = Comparison.SAME
    for key, expected_version in expected.items():
        item = store.get(key)
        held = item.version if item is not None else 0
        if held == expected_version:
            continue
        was_overtaken = at > version and (item is None or held > version)
        if not was_overtaken:
            if expected_version <= at or held > expected_version:
                return Comparison.DISPROVED
            result = Comparison.BEHIND
    for item in store:
        if item.key not in expected and item.version <= version and concerns(item):
            if at >= version:
                return Comparison.DISPROVED
            result = Comparison.BEHIND
    return result


class HistoryDiverged(Exception):
    """The cloud's history is not that of the store."""


class Miscounted(Exception):
    """The cloud has another number of objects than the store. It need not be exact."""


class HistoryVerifier:
    """Verifies the cloud's history after a break, before the store's version is trusted again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_broken = False
        """There was a break, in which the cloud may have been restored from a backup."""
        self._resumed_at = 0
        self._last_event: LastSeenEvent | None = None
        self._expected: tuple[int, Mapping[Key, int], int] | None = None
        self._counted: tuple[int, int] | None = None
        """A version of the cloud, and how many objects it has there."""
        self._is_list = False
        """The last event is the newest object of a list, which does not prove that nothing was deleted since."""
        self._passing: set[Key] = set()
        """The objects that came since, and must go before the version of the list."""
        self.may_count = True
        """The number of objects can prove deletions."""

    @property
    def awaits_last_event(self) -> bool:
        """Whether the watch must first bring an event that the store has seen."""
        return self._last_event is not None

    @property
    def is_verified(self) -> bool:
        """Whether the cloud has shown all that it must."""
        is_shown = self._last_event is None and self._expected is None and self._counted is None
        return not self.is_broken and is_shown and not self._passing

    @property
    def last_event_wait(self) -> float | None:
        """Seconds in which that event must come; None where none is awaited."""
        return LAST_EVENT_WAIT if self.awaits_last_event else None

    @property
    def watch_from(self) -> int:
        """The version to watch from."""
        return self._last_event.version - 1 if self._last_event is not None else self._store.version

    def begin(self) -> None:
        """The store was just listed, so the cloud has nothing to prove."""
        self._forget()
        self._resumed_at, self.may_count = 0, True

    def _forget(self) -> None:
        self._last_event = self._expected = self._counted = None
        self._is_list, self._passing = False, set()

    def expect_last_event(self) -> bool:
        """Begin the watch with the last event of the store; False where names are the cheaper proof, or are needed at
        once, because another store was disproved.

        A history that has this event is the same up to it, and the store lacks nothing up to it.
        """
        self._forget()
        self._resumed_at = self._store.version
        is_cheaper = len(self._store) > FEW and self._store.standing is not Standing.DOUBTED
        self._last_event = self._store.last_event if is_cheaper else None
        return self.awaits_last_event

    @property
    def can_count(self) -> bool:
        """Whether the newest object and the number of all are the cheaper proof, where no event is known."""
        is_cheaper = len(self._store) > FEW and self._store.standing is not Standing.DOUBTED
        return self.may_count and is_cheaper and self._newest.version > 1

    @property
    def _newest(self) -> LastSeenEvent:
        newest = max(self._store, key=lambda item: item.version)
        return LastSeenEvent(newest.key, newest.version)

    def expect_count(self, version: int, count: int) -> None:
        """Begin the watch with the newest object of the list: the cloud has this many at this version.

        A history that has this object is the same up to it. Since then, until the list, things can only have gone:
        where any of them had not, there would be more objects.
        """
        self._last_event, self._is_list = self._newest, True
        self._counted = version, count

    def forget_last_event(self) -> None:
        """The cloud no longer has the event, or has not sent it in time."""
        self._forget()
        self._store.last_event = None
        self.may_count = False

    def compare(self, version: int, names: Mapping[Key, int], given: int) -> None:
        """Take the cloud's names at a version. HistoryDiverged where no event can bring the store there.

        `given` as in `compare` of this module.
        """
        self._forget()
        result = compare(self._store, names, version, given)
        if result is Comparison.DISPROVED:
            raise HistoryDiverged(f"the cloud had other objects at version {version}, or was at {given}")
        if result is Comparison.SAME:
            self._store.stand(Standing.GOOD)
        else:
            self._expected = version, names, given

    def listed(self, version: int, items: Mapping[Key, Item], given: int) -> None:
        """Check a list before the store takes it, unless it begins a history. HistoryDiverged and `given` as `compare`.

        The versions of another cluster may all be above the store's, as if everything had been written since.
        """
        if self._store.complete and self._store.standing is not Standing.DISPROVED:
            key = PERMANENT.get(self._store.kind, ("", ""))
            held, now = self._store.get(key), items.get(key)
            if held is not None and now is not None and held.decode().uid != now.decode().uid:
                raise HistoryDiverged(f"{'/'.join(key).strip('/')} has another uid: it is another cluster")
            self.compare(version, {key: item.version for key, item in items.items()}, given)

    def event(self, key: Key, version: int, *, is_clouds: bool = True, has_gone: bool = False) -> bool:
        """Check an event of the watch before the store takes it; return whether it is to take it.

        HistoryDiverged for an event that contradicts the store. Miscounted as in `progress`. A leader may correct its
        follower by events of any version.
        """
        if self._last_event is not None:
            if self._last_event != (key, version):
                raise HistoryDiverged(
                    f"version {self._last_event.version} is not of {'/'.join(self._last_event.key)}"
                )
            self._last_event = None
            # Of a list the store has the object, and it is no event that all later ones are known after.
            return not self._is_list
        if not is_clouds or not version or version > self._resumed_at:
            if is_clouds and version:
                self._passed(version - 1)
            return True
        if not self._is_list or self._store.get(key) is not None:
            raise HistoryDiverged(
                f"{'/'.join(key)} was written at version {version}, of which the store has nothing"
            )
        (self._passing.discard if has_gone else self._passing.add)(key)
        return False

    def progress(self) -> None:
        """Compare again once the store has reached the version of the names, or of the number.

        HistoryDiverged where names still differ; Miscounted where the number does, which names are to explain.
        """
        if self._expected is not None and self._store.version >= self._expected[0]:
            self.compare(*self._expected)
        if self._last_event is None and self._store.version > self._resumed_at:
            self._passed(self._store.version)
        elif self._last_event is None:
            self._count(self._store.version)

    def _passed(self, version: int) -> None:
        """Check the store, of which the cloud has shown everything up to a version past that of its list."""
        if self._passing:
            raise HistoryDiverged(f"{'/'.join(min(self._passing))} is there, of which the store has nothing")
        self._is_list = False
        self._count(version)

    def _count(self, version: int) -> None:
        """Compare the number of objects where the store is at the version of the cloud's."""
        if self._counted is not None and version >= self._counted[0]:
            counted, self._counted = self._counted, None
            if counted[1] != len(self._store):
                self.may_count, self.is_broken = False, True
                raise Miscounted(f"the cloud has {counted[1]} objects at version {counted[0]}")
