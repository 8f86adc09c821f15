"""Values that are read from objects: once for each object, and never from an object that has changed since."""

from __future__ import annotations

import pytest

from addons.inputs.derived import Derived
from kube.store.store import Change, Item
from tests.kube.support.toys import Toy, filled


def item(version: int) -> Item:
    (made,) = filled(version, Toy("a", version=version))
    return made


class Reader:
    """Reads the version of an object, and counts."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, found: Item) -> int:
        self.reads += 1
        return found.version


def test_an_object_is_read_once() -> None:
    reader, found = Reader(), item(1)
    derived = Derived(reader)
    assert [derived.of(found), derived.of(found), reader.reads] == [1, 1, 1]
    assert derived.of(item(2)) == 2


@pytest.mark.parametrize("asked_first", [False, True])
def test_a_change_tells_what_was_and_what_is(asked_first: bool) -> None:
    """Also where another listener, which heard of the change earlier, has asked for the new object."""
    old, new = item(1), item(2)
    derived = Derived(Reader())
    derived.of(old)
    if asked_first:
        derived.of(new)
    assert derived.follow(Change(2, new.key, old, new)) == (1, 2)
    assert derived.of(new) == 2


def test_nothing_is_read_for_a_change_that_nobody_asked_about() -> None:
    reader, old, new = Reader(), item(1), item(2)
    derived = Derived(reader)
    assert derived.follow(Change(2, new.key, old, new)) is None
    assert reader.reads == 0


def test_an_object_that_came_or_went_was_nothing_or_is_nothing() -> None:
    reader, found = Reader(), item(1)
    derived = Derived(reader)
    derived.of(found)
    assert derived.follow(Change(2, found.key, found, None)) is None
    derived.of(found)
    assert derived.follow(Change(1, found.key, None, found)) is None
    derived.of(found)
    derived.clear()
    assert derived.follow(Change(1, found.key, found, found)) is None
