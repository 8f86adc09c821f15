"""A filter that reads a part of an answer depends on that part alone; and each object is read once."""

from __future__ import annotations

import pytest

from addons.inputs.derived import Derived
from addons.inputs.filter_inputs import MANY_LABELS, of_labels
from addons.inputs.input_sources import InputKind
from addons.inputs.recorded_inputs import RecordedLabels, RecordedMembers
from kube.store.projection import InputKey
from kube.store.store import Change, Item
from tests.kube.support.toys import Toy, filled


def test_a_label_is_read_by_who_looks_at_it() -> None:
    reads: set[InputKey] = set()
    labels = RecordedLabels("n2", {"zone": "a"}, reads)
    assert not reads
    assert (labels.get("zone"), labels.get("rack"), "row" in labels, labels["zone"]) == (
        "a",
        None,
        False,
        "a",
    )
    assert reads == {(InputKind.NODE, "n2", key) for key in ("zone", "rack", "row")}
    assert dict(labels) == {"zone": "a"}
    assert (InputKind.NODE, "n2", None) in reads, "any label counts for who goes through them"


def test_a_member_is_read_by_who_looks_for_it() -> None:
    reads: set[InputKey] = set()
    members = RecordedMembers("p1", frozenset({"n1"}), reads)
    assert ("n1" in members, "n2" in members) == (True, False)
    assert reads == {(InputKind.POOL, "p1", "n1"), (InputKind.POOL, "p1", "n2")}
    assert set(members) == {"n1"}
    assert (InputKind.POOL, "p1", None) in reads, "any node counts for who goes through them"


def test_very_many_labels_of_a_node_touch_who_asked_for_any_of_them() -> None:
    """A kubelet may write a hundred thousand, each of which was looked up among what filters asked."""
    many = {f"k{number}": "" for number in range(MANY_LABELS)}
    touched = [of_labels("n2", many, many | more) for more in ({}, {"zone": "a"})]
    asked: set[InputKey] = {(InputKind.NODE, "n2")}
    assert touched == [set(), asked]


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
