"""Versioned storage: the counter, the state at a version, what is forgotten, and going back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.json_type import Json
from tests.cloud.scriptable.storage import Change, ChangeType, Compacted, Follower, Storage

KEY = ("", "a")


def value(name: str = "a", **fields: object) -> Json:
    return {"metadata": {"name": name}, **fields}


class RecordedInputs(Follower):
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.restores = 0

    def changed(self, change: Change) -> None:
        self.changes.append(change)

    def restored(self) -> None:
        self.restores += 1


def test_every_write_gets_the_next_version_whatever_its_collection() -> None:
    storage = Storage(first_version=7)
    assert storage.write("pods", KEY, value()).version == 8
    assert storage.write("nodes", KEY, value()).value["metadata"]["resourceVersion"] == "9"
    assert storage.remove("pods", KEY).value["metadata"]["resourceVersion"] == "10"
    assert storage.version == 10


def test_versions_are_64_bit() -> None:
    storage = Storage(first_version=2**63)
    assert storage.write("pods", KEY, value()).value["metadata"]["resourceVersion"] == "9223372036854775809"


def test_followers_are_told_in_order_and_only_while_they_follow() -> None:
    storage, follower = Storage(), RecordedInputs()
    collection = storage.collection("pods")
    collection.follow(follower)
    storage.write("pods", KEY, value(x=1))
    storage.write("nodes", KEY, value())
    storage.write("pods", KEY, value(x=2))
    storage.remove("pods", KEY)
    collection.unfollow(follower)
    storage.write("pods", KEY, value())
    assert [change.type for change in follower.changes] == [
        ChangeType.ADDED,
        ChangeType.MODIFIED,
        ChangeType.DELETED,
    ]
    assert [change.version for change in follower.changes] == [101, 103, 104]
    deleted = follower.changes[2]
    assert deleted.previous is follower.changes[1].stored
    assert deleted.stored.value == {"metadata": {"name": "a", "resourceVersion": "104"}, "x": 2}


def test_a_deletion_leaves_the_object_before_it_as_it_was() -> None:
    storage = Storage()
    stored = storage.write("pods", KEY, value())
    storage.remove("pods", KEY)
    assert stored.value["metadata"]["resourceVersion"] == "101"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_the_state_at_any_version_is_what_it_was_then(steps: list[tuple[str, bool]]) -> None:
    storage = Storage()
    collection = storage.collection("pods")
    states = {storage.version: dict(collection.objects)}
    for name, write in steps:
        if write:
            storage.write("pods", ("", name), value(name))
        elif ("", name) in collection.objects:
            storage.remove("pods", ("", name))
        states[storage.version] = dict(collection.objects)
    for version, state in states.items():
        assert collection.at(version) == state
        assert [change.version for change in collection.changes_since(version)] == list(
            range(version + 1, storage.version + 1)
        )


def test_history_is_a_ring() -> None:
    storage = Storage(history=3)
    for _ in range(5):
        storage.write("pods", KEY, value())
    collection = storage.collection("pods")
    assert [change.version for change in collection.changes_since(102)] == [103, 104, 105]
    with pytest.raises(Compacted) as refused:
        collection.changes_since(101)
    assert refused.value.oldest == 102


def test_compaction_forgets_all_older_versions() -> None:
    storage = Storage()
    storage.write("pods", KEY, value())
    storage.compact()
    collection = storage.collection("pods")
    assert collection.at(101) == collection.objects
    for version in (100, 1):
        with pytest.raises(Compacted):
            collection.at(version)
        with pytest.raises(Compacted):
            storage.collection("never written to").changes_since(version)


def test_restoring_a_snapshot_goes_back_and_tells_followers() -> None:
    storage, follower = Storage(), RecordedInputs()
    storage.write("pods", KEY, value(x=1))
    snapshot = storage.snapshot()
    storage.collection("pods").follow(follower)
    storage.write("pods", KEY, value(x=2))
    storage.write("nodes", KEY, value())
    storage.restore(snapshot)
    assert storage.version == 101
    assert storage.collection("pods").objects[KEY].value["x"] == 1
    assert storage.collection("nodes").objects == {}
    assert follower.restores == 1
    assert storage.write("pods", KEY, value(x=3)).version == 102
    with pytest.raises(Compacted):
        storage.collection("pods").changes_since(100)


def test_a_recorded_encoding_stays_with_its_object() -> None:
    storage = Storage()
    storage.write("pods", KEY, value(), lambda version: b"recorded at %d" % version)
    removed = storage.remove("pods", KEY)
    assert removed.recorded is not None
    assert removed.recorded(removed.version) == b"recorded at 102"
