"""A store's history: known versions, and known gaps."""

from __future__ import annotations

import orjson
import pytest

from kube.store import history as history_module
from kube.store import store as store_module
from kube.store.history import Standing
from kube.store.resumption import Resumption
from kube.store.store import Store
from kube.wire.api_objects import decode_object
from kube.wire.codec_base import HISTORY_GAP
from tests.kube.support.toys import Toy, after, events_of, fill, filled, short, tell, view_of


def changes_after(store: Store, version: int) -> list[tuple[int, str, bool]]:
    """Return version and name of each change after a version, and whether the object was deleted."""
    return [(each.version, each.key[1], each.new is None) for each in store.history.after(version)]


def test_the_changes_after_a_version_are_returned() -> None:
    store = filled(10, Toy("x", version=4))
    tell(store, "ADDED", Toy("y", version=11))
    tell(store, "DELETED", Toy("x", version=12))
    assert changes_after(store, 10) == [(11, "y", False), (12, "x", True)]
    assert changes_after(store, 11) == [(12, "x", True)]
    assert [store.history.has_all_after(version) for version in (9, 10, 12)] == [False, True, True]
    assert list(store.gone_after(10)) == [("a", "x")]


def test_a_local_write_follows_the_version_at_which_it_was_made() -> None:
    store = filled(10, Toy("x", version=4))
    store.amend(Toy("x", version=4, address="10.0.0.9").raw(store.codec.encoding))
    assert changes_after(store, 10) == [(4, "x", False)]
    assert changes_after(store, 11) == []


@pytest.mark.parametrize(
    ("version", "is_known"), [(10, True), (11, False), (19, False), (20, True), (21, True)]
)
def test_a_version_within_the_gap_of_a_list_cannot_be_resumed(version: int, is_known: bool) -> None:
    """Objects created and deleted between the two versions were never seen."""
    store = filled(10, Toy("x", version=4))
    fill(store, 20, Toy("x", version=4), Toy("y", version=15))
    assert store.history.is_in_gap(version) is not is_known
    assert store.history.has_all_after(version) is is_known
    assert store.history.names_all_gone_after(version) is is_known


def test_a_list_at_the_same_version_leaves_no_gap() -> None:
    store = filled(10, Toy("x", version=4))
    fill(store, 10, Toy("x", version=4))
    assert store.history.gap_count == 0


def test_a_history_is_bounded_by_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_CHANGES", 2)
    store = filled(10, Toy("x", version=4))
    tell(store, "DELETED", Toy("x", version=11))
    for version in (12, 13):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
    assert [store.history.has_all_after(version) for version in (10, 11)] == [False, True]
    assert [store.history.names_all_gone_after(version) for version in (10, 11)] == [False, True]
    tell(store, "ADDED", Toy("at14", version=14))
    assert [store.history.has_all_after(version) for version in (11, 12)] == [False, True]
    assert store.history.names_all_gone_after(11), "nothing has gone since"


def test_a_history_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_CHANGED_BYTES", 0)
    store = filled(10)
    tell(store, "ADDED", Toy("y", version=11))
    assert changes_after(store, 10) == []


def test_labels_are_included_in_the_bytes_of_a_history() -> None:
    """An object with 20,000 labels took four times its bytes, and a history retained several of its states."""
    store = filled(10)
    for version, count in ((11, 10), (12, 12_000)):
        labels = {f"k{number}": "" for number in range(count)}
        metadata = {"name": "y", "resourceVersion": str(version), "labels": labels}
        store.apply("MODIFIED", orjson.dumps({"metadata": metadata}))
        assert bool(changes_after(store, version - 1)) is (count == 10)


def test_gaps_beyond_the_bound_are_merged() -> None:
    store = filled(10, Toy("x", version=4))
    for version in range(20, 20 + 10 * (history_module.MAX_GAPS + 1), 10):
        fill(store, version, Toy("x", version=4))
    known = [version for version in range(10, 60, 10) if not store.history.is_in_gap(version)]
    assert known == [10, 30, 40, 50]
    assert [store.history.is_in_gap(version) for version in (15, 25, 35)] == [True] * 3


@pytest.mark.parametrize(("since", "gap"), [(10, "10"), (20, "30"), (40, "")])
async def test_a_client_that_resumes_before_gaps_gets_the_first_in_the_bookmark(since: int, gap: str) -> None:
    """A follower that was disconnected while its leader listed again has clients that may be in the gap."""
    store = filled(10, Toy("x", version=4))
    view = view_of(store)
    fill(store, 20, Toy("x", version=4))
    tell(store, "MODIFIED", Toy("x", version=30))
    fill(store, 40, Toy("x", version=30))
    watcher = view.watch(since, bookmarks=True)
    watcher.end()
    *_, bookmark = view.codec.frames().feed(b"".join(await watcher.frames()))
    found = decode_object(view.codec.encoding, "v1", "Service", bookmark.raw)
    assert found.annotations.get(HISTORY_GAP, "") == gap


def test_another_history_starts_with_its_list() -> None:
    store = filled(10, Toy("x", version=4))
    tell(store, "DELETED", Toy("x", version=11))
    store.set_standing(Standing.DISPROVED)
    fill(store, 30, Toy("x", version=4))
    assert [store.history.has_all_after(version) for version in (11, 29, 30)] == [False, False, True]


async def test_a_client_of_a_former_history_gets_the_objects_that_differ() -> None:
    """The restored cloud has reached the same version with other objects."""
    store = filled(10, Toy("x", version=4), Toy("of the former", version=10))
    store.set_standing(Standing.DISPROVED)
    fill(store, 10, Toy("x", version=4), Toy("of this", version=10))
    view = view_of(store)
    first = [short(each) for each in events_of(view, view.watch(10, bookmarks=False).initial_events())]
    assert first == [("DELETED", "of the former", 10), ("ADDED", "of this", 10), ("ADDED", "x", 4)]
    tell(store, "ADDED", Toy("y", version=11))
    assert after(view, 11) == []


async def test_a_former_history_may_differ_by_more_objects_than_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a client of this one would be refused and list again, until the restored cloud has reached the former
    version."""
    monkeypatch.setattr(history_module, "MAX_CHANGES", 2)
    store = filled(20, *(Toy(name, version=19) for name in "abcd"))
    store.set_standing(Standing.DISPROVED)
    fill(store, 10)
    view = view_of(store)
    first = [short(each)[:2] for each in events_of(view, view.watch(10, bookmarks=False).initial_events())]
    assert first == [("DELETED", name) for name in "abcd"]
    store.advance(21)
    assert [view.judge(version) for version in (20, 21)] == [Resumption.CORRECT, Resumption.FOLLOW]


async def test_objects_of_former_histories_are_bounded(
    monkeypatch: pytest.MonkeyPatch, reached: list[str]
) -> None:
    monkeypatch.setattr(store_module, "MAX_ITEMS", 2)
    store = filled(20, Toy("a", version=18), Toy("b", version=19))
    store.set_standing(Standing.DISPROVED)
    fill(store, 10, Toy("c", version=9))
    assert (reached, sorted(store.gone_after(10))) == ([], [("a", "a"), ("a", "b")])
    store.set_standing(Standing.DISPROVED)
    fill(store, 10)
    assert (reached, sorted(store.gone_after(10))) == (["objects of former histories"], [("a", "c")])


async def test_a_client_of_a_former_history_gets_the_deletions_that_it_missed() -> None:
    """The client disconnected before them, and the restored cloud has reached the client's version."""
    store = filled(10)
    tell(store, "ADDED", Toy("gone", version=12))
    tell(store, "DELETED", Toy("gone", version=13))
    store.set_standing(Standing.DISPROVED)
    fill(store, 12)
    view = view_of(store)
    first = [short(each) for each in events_of(view, view.watch(12, bookmarks=False).initial_events())]
    assert first == [("DELETED", "gone", 12)]


async def test_a_list_can_be_resumed_from_after_any_number_of_local_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node in a long outage accepts hundreds of statuses at one version. The next process has only their names."""
    monkeypatch.setattr(history_module, "MAX_CHANGES", 2)
    monkeypatch.setattr(history_module, "MAX_PAST", 2)
    store = filled(10, *(Toy(name, version=4) for name in "abcd"))
    for name in "abcd":
        store.amend(Toy(name, version=4, address="10.0.0.9").raw(store.codec.encoding))
    restored = filled(10, *(Toy(name, version=4, address="10.0.0.9") for name in "abcd"))
    restored.history.recall(store.history.past(store.version))
    for each in store, restored:
        view = view_of(each)
        watcher = view.watch(view.version, bookmarks=False)
        assert [short(event)[1] for event in events_of(view, watcher.initial_events())] == [*"abcd"]
    for version in (11, 12):
        tell(store, "ADDED", Toy(f"at{version}", version=version))
    assert [store.history.names_all_changed_after(version) for version in (10, 11)] == [False, True]
