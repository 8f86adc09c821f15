"""What the names and versions of the cloud say of a store."""

from __future__ import annotations

import pytest

from kube.reflector.comparison import Comparison, compare
from kube.store.store import Key
from tests.kube.support.toys import Toy, filled, tell

SAME, BEHIND, DISPROVED = Comparison.SAME, Comparison.BEHIND, Comparison.DISPROVED


@pytest.mark.parametrize(
    ("expected", "version", "found"),
    [
        ({"x": 4, "y": 9}, 10, SAME),
        # The cluster went on, but nothing of this kind did.
        ({"x": 4, "y": 9}, 15, SAME),
        # On their way: a write, a new object, a deletion.
        ({"x": 12, "y": 9}, 15, BEHIND),
        ({"x": 4, "y": 9, "z": 12}, 15, BEHIND),
        ({"x": 4}, 15, BEHIND),
        # Up to its own version the store can lack nothing: another write, another object, one that was deleted.
        ({"x": 5, "y": 9}, 15, DISPROVED),
        ({"x": 3, "y": 9}, 15, DISPROVED),
        ({"x": 4, "y": 9, "z": 8}, 15, DISPROVED),
        ({"x": 4}, 10, DISPROVED),
        # It was at 10 already when it was asked.
        ({"x": 4, "y": 9}, 9, DISPROVED),
    ],
)
def test_a_store_at_version_10(expected: dict[str, int], version: int, found: Comparison) -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    names: dict[Key, int] = {("a", name): at for name, at in expected.items()}
    assert compare(store, names, version, 10) is found


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        # The store has gone on since the cloud said so: x was written and y deleted, z was created.
        ({"x": 4, "y": 9}, SAME),
        ({"x": 4}, SAME),
    ],
)
def test_a_store_that_went_on_meanwhile(expected: dict[str, int], found: Comparison) -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    tell(store, "MODIFIED", Toy("x", version=16))
    tell(store, "DELETED", Toy("y", version=17))
    tell(store, "ADDED", Toy("z", version=18))
    names: dict[Key, int] = {("a", name): at for name, at in expected.items()}
    assert compare(store, names, 15, 10) is found


def test_what_was_not_asked_for_proves_nothing() -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    assert compare(store, {("a", "x"): 4}, 10, 10, lambda item: item.key[1] == "x") is SAME
