"""Checks whether the cloud still has the history of a store, or was restored from a backup meanwhile.

A restored cloud counts its versions up again, and accepts a watch from a version that now means something else. Once
it has been written past a store's version, the number alone does not show it, and a watch from that version never
brings what differs. So after each break a reflector has the cloud prove its history: by an event that the store has
seen, or by names and versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from kube.store.history import Witness
from kube.store.store import Item, Key, Store

FEW = 50
"""The names and versions of up to so many objects are listed: they take less than one whole object of other kinds."""
WITNESS_WAIT = 10.0
"""Seconds for the event that proves the cloud's history. After them names and versions are asked for."""


class Comparison(Enum):
    """What the cloud's state says of a store."""

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

    `given` is the newest version that clients had been given before the cloud was asked. `concerns` says of an object
    of the store whether it is among those that were asked for. Versions count up in one resource, and a watch is in
    their order: up to the store's version nothing can be missing or wrong.
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


class OtherHistory(Exception):
    """The cloud's history is not that of the store."""


class Continuity:
    """What the cloud must show after a break before the store's version is trusted again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_broken = False
        """There was a break, in which the cloud may have been restored from a backup."""
        self._resumed_at = 0
        self._witness: Witness | None = None
        self._expected: tuple[int, Mapping[Key, int], int] | None = None

    @property
    def awaits_witness(self) -> bool:
        """Whether the watch must first bring an event that the store has seen."""
        return self._witness is not None

    @property
    def is_whole(self) -> bool:
        """Whether the cloud has shown all that it must."""
        return not self.is_broken and self._witness is None and self._expected is None

    @property
    def witness_wait(self) -> float | None:
        """Seconds in which that event must come; None where none is awaited."""
        return WITNESS_WAIT if self.awaits_witness else None

    @property
    def watch_from(self) -> int:
        """The version to watch from."""
        return self._witness.version - 1 if self._witness is not None else self._store.version

    def begin(self) -> None:
        """The store was just listed, so the cloud has nothing to show."""
        self._resumed_at, self._witness, self._expected = 0, None, None

    def expect_witness(self) -> bool:
        """Have the watch begin with the last event of the store; False where names are the cheaper proof.

        A history that has this event is the same up to it, and the store lacks nothing up to it.
        """
        self._resumed_at, self._expected = self._store.version, None
        self._witness = self._store.witness if len(self._store) > FEW else None
        return self.awaits_witness

    def forget_witness(self) -> None:
        """The cloud no longer has the event, or has not sent it in time."""
        self._witness = self._store.witness = None

    def compare(self, version: int, names: Mapping[Key, int], given: int) -> None:
        """Take what the cloud has at a version. OtherHistory where no event can bring the store there.

        `given` as in `compare` of this module.
        """
        self._expected = None
        result = compare(self._store, names, version, given)
        if result is Comparison.DISPROVED:
            raise OtherHistory(f"the cloud had other objects at version {version}, or was at {given}")
        if result is Comparison.BEHIND:
            self._expected = version, names, given

    def listed(self, version: int, items: Mapping[Key, Item], given: int) -> None:
        """Check a list before the store takes it, unless it begins a history. OtherHistory and `given` as `compare`."""
        if self._store.complete and not self._store.is_disproved:
            self.compare(version, {key: item.version for key, item in items.items()}, given)

    def event(self, key: Key, version: int, *, is_clouds: bool = True) -> None:
        """Check an event of the watch before the store takes it. OtherHistory for one that the store should know.

        A leader may correct what its follower holds, by events of any version.
        """
        if self._witness is not None:
            if self._witness != (key, version):
                raise OtherHistory(f"version {self._witness.version} is not of {'/'.join(self._witness.key)}")
            self._witness = None
        elif is_clouds and version and version <= self._resumed_at:
            raise OtherHistory(
                f"{'/'.join(key)} was written at version {version}, of which the store has nothing"
            )

    def progress(self) -> None:
        """Compare again once the store has reached the version of the names. OtherHistory where they still differ."""
        if self._expected is not None and self._store.version >= self._expected[0]:
            self.compare(*self._expected)
