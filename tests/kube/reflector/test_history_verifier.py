"""Verification of the cloud's history: by an event that the store has seen, or by names and versions."""

from __future__ import annotations

import contextlib

import pytest

from kube.reflector import history_verifier as verifier_module
from kube.reflector.history_verifier import Comparison, HistoryDiverged, HistoryVerifier, Miscounted, compare
from kube.store.history import Standing
from kube.store.store import Key, Store
from tests.kube.support.toys import Toy, fill, filled, tell

SAME, BEHIND, DISPROVED = Comparison.SAME, Comparison.BEHIND, Comparison.DISPROVED


@pytest.mark.parametrize(
    ("expected", "version", "found"),
    [
        ({"x": 4, "y": 9}, 10, SAME),
        # The cluster's version advanced without a change of this kind.
        ({"x": 4, "y": 9}, 15, SAME),
        # Pending events: a write, a new object, a deletion.
        ({"x": 12, "y": 9}, 15, BEHIND),
        ({"x": 4, "y": 9, "z": 12}, 15, BEHIND),
        ({"x": 4}, 15, BEHIND),
        # A difference up to the store's own version disproves it: a write, an object, a deletion.
        ({"x": 5, "y": 9}, 15, DISPROVED),
        ({"x": 3, "y": 9}, 15, DISPROVED),
        ({"x": 4, "y": 9, "z": 8}, 15, DISPROVED),
        ({"x": 4}, 10, DISPROVED),
        # The store was already at 10 when the request was sent.
        ({"x": 4, "y": 9}, 9, DISPROVED),
    ],
)
def test_a_store_is_compared_with_names_and_versions(
    expected: dict[str, int], version: int, found: Comparison
) -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    names: dict[Key, int] = {("a", name): at for name, at in expected.items()}
    assert compare(store, names, version, 10) is found


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        # The store has advanced since the response: x was written, y deleted, and z created.
        ({"x": 4, "y": 9}, SAME),
        ({"x": 4}, SAME),
    ],
)
def test_a_store_that_advanced_meanwhile_is_not_disproved(
    expected: dict[str, int], found: Comparison
) -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    tell(store, "MODIFIED", Toy("x", version=16))
    tell(store, "DELETED", Toy("y", version=17))
    tell(store, "ADDED", Toy("z", version=18))
    names: dict[Key, int] = {("a", name): at for name, at in expected.items()}
    assert compare(store, names, 15, 10) is found


def test_a_leader_that_lacks_applied_writes_disproves_nothing() -> None:
    """The follower took its leader's names for those of a restored cloud, and ended every watch."""
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    for toy in (Toy("x", version=21), Toy("new", version=22)):
        store.apply_response(toy.key, toy.raw(store.codec.encoding))
    store.apply_response(("a", "y"), None)
    assert compare(store, {("a", "x"): 4, ("a", "y"): 9}, 10, 10) is SAME


def test_objects_outside_the_selection_are_ignored() -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=9))
    assert compare(store, {("a", "x"): 4}, 10, 10, lambda item: item.key[1] == "x") is SAME


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return a store too large to compare by names, which has seen `y` created at version 11."""
    monkeypatch.setattr(verifier_module, "FEW_OBJECTS", 1)
    store = filled(10, Toy("x", version=4))
    tell(store, "ADDED", Toy("y", version=11))
    store.advance(20)
    return store


def test_a_watch_starts_at_the_last_event_that_the_store_has_seen(large: Store) -> None:
    verifier = HistoryVerifier(large)
    assert verifier.expect_last_event()
    assert verifier.watch_from == 10
    verifier.event(("a", "y"), 11)
    assert not verifier.awaits_last_event
    verifier.event(("a", "x"), 21)


def test_the_last_event_is_taken_again_unless_its_object_was_written_since(large: Store) -> None:
    """It notifies the store's listeners, though nothing changes; an applied write is newer."""
    verifier = HistoryVerifier(large)
    for is_written in (False, True):
        if is_written:
            large.apply_response(("a", "y"), Toy("y", version=33, app="web").raw(large.codec.encoding))
        assert verifier.expect_last_event()
        assert verifier.event(("a", "y"), 11) is not is_written


@pytest.mark.parametrize(("name", "version"), [("x", 11), ("y", 12), ("z", 21)])
def test_another_event_at_that_version_disproves_the_history(large: Store, name: str, version: int) -> None:
    verifier = HistoryVerifier(large)
    verifier.expect_last_event()
    with pytest.raises(HistoryDiverged):
        verifier.event(("a", name), version)


def test_an_event_that_the_store_should_have_disproves_the_history(large: Store) -> None:
    """The store had everything up to version 20."""
    verifier = HistoryVerifier(large)
    verifier.expect_last_event()
    verifier.event(("a", "y"), 11)
    with pytest.raises(HistoryDiverged):
        verifier.event(("a", "z"), 20)


def test_a_leader_may_send_events_that_its_follower_lacks(large: Store) -> None:
    verifier = HistoryVerifier(large)
    verifier.expect_last_event()
    verifier.event(("a", "y"), 11)
    verifier.event(("a", "x"), 4, is_clouds=False)


def test_a_list_gives_no_last_seen_event(large: Store) -> None:
    """A list does not show the last deletion."""
    fill(large, 30, Toy("x", version=4), Toy("y", version=11))
    verifier = HistoryVerifier(large)
    assert not verifier.expect_last_event()
    assert verifier.watch_from == 30


def test_a_few_objects_are_compared_by_name() -> None:
    store = filled(10, Toy("x", version=4))
    tell(store, "ADDED", Toy("y", version=11))
    assert not HistoryVerifier(store).expect_last_event()


@pytest.mark.parametrize(
    ("event", "name", "is_same"), [("ADDED", "y", False), ("DELETED", "gone", True)], ids=["lost", "brought"]
)
def test_names_that_the_store_does_not_have_yet_are_compared_again(
    event: str, name: str, is_same: bool
) -> None:
    """A missing deletion is a difference only once the store is at the version of the names."""
    store = filled(10, Toy("x", version=4), Toy("gone", version=9))
    verifier = HistoryVerifier(store)
    verifier.compare(15, {("a", "x"): 4}, 10)
    tell(store, event, Toy(name, version=14))
    verifier.progress()
    store.advance(16)
    with contextlib.nullcontext() if is_same else pytest.raises(HistoryDiverged):
        verifier.progress()


def test_a_cloud_behind_an_issued_version_was_restored() -> None:
    store = filled(10, Toy("x", version=4))
    with pytest.raises(HistoryDiverged):
        HistoryVerifier(store).compare(11, {("a", "x"): 4}, 12)


def test_after_a_list_no_verification_is_needed(large: Store) -> None:
    verifier = HistoryVerifier(large)
    verifier.expect_last_event()
    fill(large, 30, Toy("x", version=4))
    verifier.begin()
    assert verifier.watch_from == 30
    verifier.event(("a", "old"), 5)


@pytest.mark.parametrize(
    ("version", "names", "is_proof"),
    [(15, {"x": 4, "y": 12}, True), (10, {"x": 4}, True), (10, {}, False), (9, {"x": 4}, False)],
)
def test_a_list_is_verified_too(version: int, names: dict[str, int], is_proof: bool) -> None:
    """The watch had ended with 410, and the cloud was restored before the list."""
    store = filled(10, Toy("x", version=4))
    toys = (Toy(name, version=at) for name, at in names.items())
    items = {item.key: item for item in filled(version, *toys)}
    with contextlib.nullcontext() if is_proof else pytest.raises(HistoryDiverged):
        HistoryVerifier(store).listed(version, items, 10)
    store.set_standing(Standing.DISPROVED)
    HistoryVerifier(store).listed(version, items, 10)


@pytest.mark.parametrize(("uid", "is_proof"), [("one", True), ("another", False)])
def test_the_uid_of_a_permanent_object_reveals_another_cluster(uid: str, is_proof: bool) -> None:
    """All versions of the other cluster may exceed the store's, as if everything had been deleted and created since."""
    key, at = ("kubernetes", "default"), Toy("kubernetes", "default", version=4, uid="one")
    store, new = filled(10, at), filled(90, Toy(*key, version=80, uid=uid), Toy(version=81))
    with contextlib.nullcontext() if is_proof else pytest.raises(HistoryDiverged):
        HistoryVerifier(store).listed(90, {item.key: item for item in new}, 10)


def test_a_recreated_object_does_not_reveal_another_cluster() -> None:
    store, new = filled(10, Toy(version=4, uid="one")), filled(90, Toy(version=80, uid="another"))
    HistoryVerifier(store).listed(90, {item.key: item for item in new}, 10)


@pytest.fixture
def just_listed(monkeypatch: pytest.MonkeyPatch) -> HistoryVerifier:
    """Return the verifier of a store without an event since its list at version 30, and too large to compare by
    names."""
    monkeypatch.setattr(verifier_module, "FEW_OBJECTS", 1)
    verifier = HistoryVerifier(filled(30, Toy("x", version=4), Toy("y", version=11)))
    assert not verifier.expect_last_event()
    assert verifier.can_count
    return verifier


def test_the_newest_object_and_the_object_count_verify_a_list(just_listed: HistoryVerifier) -> None:
    """An object created later and missing in the list must have been deleted before the list's version."""
    just_listed.expect_count(35, 2)
    assert just_listed.watch_from == 10
    assert not just_listed.event(("a", "y"), 11)
    assert not just_listed.event(("a", "z"), 12)
    assert not just_listed.event(("a", "z"), 20, has_gone=True)
    assert not just_listed.is_verified
    assert just_listed.event(("a", "x"), 36)
    just_listed.progress()
    assert just_listed.is_verified


@pytest.mark.parametrize(
    "events",
    [[("z", 12, False), ("new", 36, False)], [("x", 12, False)], [("x", 12, True)]],
    ids=["it stays", "the store has an older one", "the store has one that went"],
)
def test_an_event_that_contradicts_the_list_disproves_the_history(
    just_listed: HistoryVerifier, events: list[tuple[str, int, bool]]
) -> None:
    just_listed.expect_count(30, 2)
    just_listed.event(("a", "y"), 11)
    *before, (name, version, has_gone) = events
    for first, at, went in before:
        just_listed.event(("a", first), at, has_gone=went)
    with pytest.raises(HistoryDiverged):
        just_listed.event(("a", name), version, has_gone=has_gone)


@pytest.mark.parametrize("write", [Toy("new", version=33), Toy("y", version=33), None])
def test_an_applied_write_is_no_object_of_the_list(just_listed: HistoryVerifier, write: Toy | None) -> None:
    """The cloud sends it after the list's objects: a new one, another y, or the deletion of y."""
    store = just_listed._store
    key = write.key if write is not None else ("a", "y")
    store.apply_response(key, write.raw(store.codec.encoding) if write is not None else None)
    just_listed.expect_count(35, len(store))
    start = just_listed.watch_from
    for name, version, has_gone in (("x", 4, False), ("y", 11, False), (key[1], 33, write is None)):
        if version > start and just_listed.event(("a", name), version, has_gone=has_gone):
            tell(store, "DELETED" if has_gone else "MODIFIED", Toy(name, version=version))
    store.advance(36)
    just_listed.progress()
    assert just_listed.is_verified


@pytest.mark.parametrize("event", [("new", 36), None], ids=["before an event", "at the version"])
def test_another_object_count_is_verified_by_names(
    just_listed: HistoryVerifier, event: tuple[str, int] | None
) -> None:
    """A restored cloud has objects that were deleted after its backup, without an event for them."""
    just_listed.expect_count(35 if event else 30, 3)
    just_listed.event(("a", "y"), 11)
    with pytest.raises(Miscounted):
        just_listed.event(("a", event[0]), event[1]) if event else just_listed.progress()
    assert not just_listed.can_count
