"""Compares a store with the names and versions that the cloud has: is it the same, behind, or of another history?

A cloud that was restored from a backup counts on from the backup's version. Once it has been written past a store's
version, the number alone does not show it, and a watch from that version never brings what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from kube.store.store import Item, Key, Store


class Comparison(Enum):
    """What the cloud's state says of a store."""

    SAME = "same"
    """The store shows what the cloud has, or what the cloud had later."""
    BEHIND = "behind"
    """Events that are on their way can make the store the same."""
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
