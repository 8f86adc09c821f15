"""A filter that reads a part of an answer depends on that part alone."""

from __future__ import annotations

from addons.inputs.filter_inputs import MANY_LABELS, of_labels
from addons.inputs.input_sources import InputKind
from addons.inputs.recorded_inputs import RecordedLabels, RecordedMembers
from kube.store.projection import InputKey


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
