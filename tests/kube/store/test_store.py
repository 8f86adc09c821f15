"""The store applies lists and events, notifies in order, and stays unchanged by unreadable input."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store import store as store_module
from kube.store.store import Item, Key, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.kube.support.toys import RecordedInputs, Toy, fill, filled, read, tell

pytestmark = pytest.mark.parametrize("encoding", Encoding)


def contents(store: Store) -> dict[Key, int]:
    return {item.key: item.version for item in store}


def test_a_store_is_empty_and_incomplete_until_its_first_list(encoding: Encoding) -> None:
    store = Store()
    recorder = RecordedInputs(store)
    assert (store.complete, store.version, len(store)) == (False, 0, 0)
    with pytest.raises(RuntimeError):
        _ = store.codec
    fill(store, 10, Toy("x", version=4), Toy("y", version=7), encoding=encoding)
    assert (store.complete, store.version, len(store)) == (True, 10, 2)
    assert (store.codec.encoding, store.api_version, store.kind) == (encoding, "v1", "Service")
    assert contents(store) == {("a", "x"): 4, ("a", "y"): 7}
    # No client has an earlier state, so the first list is not notified.
    assert recorder.heard == ["at 10"]


def test_events_of_a_watch_are_notified_with_the_former_and_new_object(encoding: Encoding) -> None:
    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    tell(store, "ADDED", Toy("y", version=11))
    tell(store, "MODIFIED", Toy("x", version=12, app="web"))
    tell(store, "DELETED", Toy("y", version=13, app="last words"))
    assert recorder.heard == [(11, ("a", "y"), None, 11), (12, ("a", "x"), 4, 12), (13, ("a", "y"), 11, None)]
    assert contents(store) == {("a", "x"): 12}
    assert store.version == 13
    # A deletion has the last state, which may differ from the previous one.
    last = recorder.changes[2].last
    assert last is not None
    assert (last.version, last.labels) == (13, {"app": "last words"})


@pytest.mark.parametrize("bound", ["MAX_ITEMS", "MAX_STORE"])
def test_a_watch_that_adds_objects_beyond_the_list_bound_is_refused(
    encoding: Encoding, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Existing objects may still change, and a deletion frees space."""
    store = filled(10, Toy("x", version=4), Toy("y", version=5), encoding=encoding)
    size = sum(len(item.raw) for item in store)
    monkeypatch.setattr(store_module, bound, {"MAX_ITEMS": 2, "MAX_STORE": size + 2}[bound])
    with pytest.raises(ValueError, match="more than"):
        tell(store, "ADDED", Toy("z", version=11))
    assert contents(store) == {("a", "x"): 4, ("a", "y"): 5}
    for version in range(20, 60, 4):
        tell(store, "MODIFIED", Toy("y", version=version))
        tell(store, "DELETED", Toy("x", version=version + 1))
        tell(store, "ADDED", Toy("x", version=version + 2))
    with pytest.raises(ValueError, match="more than"):
        tell(store, "ADDED", Toy("z", version=70))
    fill(store, 80, Toy("y", version=58), encoding=encoding)
    tell(store, "ADDED", Toy("z", version=81))
    assert contents(store) == {("a", "y"): 58, ("a", "z"): 81}


@pytest.mark.parametrize(
    ("event_type", "toy"),
    [("ADDED", Toy("x", version=4)), ("MODIFIED", Toy("x", version=4)), ("DELETED", Toy("gone", version=9))],
    ids=["added twice", "modified twice", "deleted what is not there"],
)
def test_a_repeated_event_is_not_notified(encoding: Encoding, event_type: str, toy: Toy) -> None:
    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    tell(store, event_type, toy)
    assert recorder.heard == []
    assert contents(store) == {("a", "x"): 4}


def test_a_local_change_is_notified_at_the_version_of_the_object(encoding: Encoding) -> None:
    store = filled(10, Toy("x", version=4), Toy("y", version=7), encoding=encoding)
    recorder = RecordedInputs(store)
    store.amend(Toy("x", version=4, app="ours").raw(encoding))
    assert recorder.heard == [(4, ("a", "x"), 4, 4)]
    assert contents(store) == {("a", "x"): 4, ("a", "y"): 7}
    item = store.get(("a", "x"))
    assert item is not None
    assert (item.labels, store.version) == ({"app": "ours"}, 10)
    # The cloud's next event replaces it.
    tell(store, "MODIFIED", Toy("x", version=12, app="theirs"))
    found = store.get(("a", "x"))
    assert found is not None
    assert found.labels == {"app": "theirs"}


@pytest.mark.parametrize(
    "toy",
    [
        Toy("x", version=4),
        Toy("x", version=3, app="old"),
        Toy("x", version=5, app="new"),
        Toy("gone", version=4),
    ],
    ids=["the same", "an older one", "a newer one", "what is not there"],
)
def test_a_local_write_applies_only_to_the_current_version(encoding: Encoding, toy: Toy) -> None:
    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    store.amend(toy.raw(encoding))
    assert recorder.heard == []
    assert contents(store) == {("a", "x"): 4}


def test_a_local_write_of_an_unreadable_object_changes_nothing(encoding: Encoding) -> None:
    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    with pytest.raises(ValueError):  # noqa: PT011 - each codec says it in its own words
        store.amend(b"\xff{")
    assert recorder.heard == []


def test_an_accepted_write_is_applied_once_and_ends_with_the_clouds_event(encoding: Encoding) -> None:
    """The node has amended the object since, and a resumed watch repeats the event before the write."""
    x, gone = Toy("x", version=4), Toy("gone", version=5)
    store = filled(10, x, gone, encoding=encoding)
    written = replace(x, version=11, app="accepted")
    store.apply_response(x.key, written.raw(encoding))
    store.apply_response(gone.key, None)
    amended = replace(x, app="accepted", address="10.0.0.2").raw(encoding)
    store.amend(amended)
    store.apply_response(x.key, written.raw(encoding))
    for toy in (x, gone):
        tell(store, "MODIFIED", toy)
    assert {item.key: item.raw for item in store} == {x.key: amended}
    assert not store.applied.were_passed(store.version)
    store.advance(11)
    assert store.applied.were_passed(store.version)
    tell(store, "MODIFIED", replace(written, version=12))
    tell(store, "DELETED", replace(gone, version=13))
    assert not store.applied


def test_a_leader_that_is_behind_does_not_undo_an_accepted_write(encoding: Encoding) -> None:
    """A follower that lost its cloud showed the objects as before its own clients' writes, until the next event."""
    x, gone = Toy("x", version=4), Toy("gone", version=5)
    store = filled(10, x, gone, encoding=encoding)
    for toy in (replace(x, version=20, app="accepted"), Toy("new", version=21)):
        store.apply_response(toy.key, toy.raw(encoding))
    store.apply_response(gone.key, None)
    before = {item.key: item.raw for item in store}
    store.may_lag = True
    tell(store, "MODIFIED", replace(x, version=12))
    fill(store, 15, replace(x, version=12), gone, encoding=encoding)
    assert {item.key: item.raw for item in store} == before
    assert len(store.applied) == 3
    fill(store, 30, replace(x, version=20), encoding=encoding)
    assert (contents(store), len(store.applied)) == ({("a", "x"): 20}, 0)


def test_a_relist_is_notified_as_its_changes_in_the_order_of_versions(encoding: Encoding) -> None:
    unchanged, changed, gone = Toy("kept", version=1), Toy("changed", version=2), Toy("gone", version=3)
    store = filled(10, unchanged, changed, gone, encoding=encoding)
    recorder = RecordedInputs(store)
    fill(store, 20, Toy("changed", version=17), Toy("new", "b", version=15), unchanged, encoding=encoding)
    assert recorder.heard == [
        (15, ("b", "new"), None, 15),
        (17, ("a", "changed"), 2, 17),
        (20, ("a", "gone"), 3, None),
        "at 20",
    ]
    # Only the list's version is known for the deletion, and the object has that version.
    last = recorder.changes[2].last
    assert last is not None
    assert read(encoding, "v1", "Service", last.raw)[1].version == 20
    assert contents(store) == {("a", "kept"): 1, ("a", "changed"): 17, ("b", "new"): 15}


def test_versions_that_go_backwards_are_notified_as_a_restart(encoding: Encoding) -> None:
    store = filled(50, Toy("x", version=40), encoding=encoding)
    recorder = RecordedInputs(store)
    fill(store, 30, Toy("y", version=29), encoding=encoding)
    assert recorder.heard == ["restarted at 30"]
    assert store.version == 30
    assert contents(store) == {("a", "y"): 29}
    tell(store, "ADDED", Toy("x", version=31))
    assert recorder.heard[1:] == [(31, ("a", "x"), None, 31)]


def test_a_list_behind_an_issued_version_restarts_the_history(encoding: Encoding) -> None:
    """A consistent list has a version that the store has not reached yet."""
    store = filled(30, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    store.given_version = 50
    fill(store, 40, Toy("y", version=35), encoding=encoding)
    assert recorder.heard == ["restarted at 40"]
    assert (store.version, store.given_version) == (40, 0)
    fill(store, 60, Toy("y", version=35), encoding=encoding)
    assert recorder.heard[1:] == ["at 60"]


def test_a_list_in_another_encoding_is_a_restart(encoding: Encoding) -> None:
    """The listeners' results and encoded bytes for the earlier objects are invalid."""

    def other() -> Encoding:
        return Encoding.JSON if encoding is Encoding.PROTOBUF else Encoding.PROTOBUF

    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    fill(store, 20, Toy("x", version=4), Toy("y", version=15), encoding=other())
    assert store.codec.encoding is other()
    assert contents(store) == {("a", "x"): 4, ("a", "y"): 15}
    assert recorder.heard == ["restarted at 20"]


MALFORMED = {
    Encoding.JSON: [b"{", b'{"metadata":{"resourceVersion":"x"}}'],
    Encoding.PROTOBUF: [b"\x0a\x05\x0a", b"\x0a\x03\x32\x01x"],
}


@pytest.mark.parametrize("malformed", [0, 1], ids=["torn", "no version"])
def test_a_list_that_cannot_be_read_changes_nothing(encoding: Encoding, malformed: int) -> None:
    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    raws = [Toy("y", version=12).raw(encoding), MALFORMED[encoding][malformed]]
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the codec's
        store.replace(codec_for(encoding), "v1", "Service", 20, raws)
    assert (store.version, store.complete, contents(store)) == (10, True, {("a", "x"): 4})
    assert recorder.heard == []


def test_an_event_that_cannot_be_read_changes_nothing(encoding: Encoding) -> None:
    store = filled(10, Toy("x", version=4), encoding=encoding)
    recorder = RecordedInputs(store)
    with pytest.raises(ValueError):  # noqa: PT011 - the words are the codec's
        store.apply("MODIFIED", MALFORMED[encoding][0])
    assert (store.version, contents(store), recorder.heard) == (10, {("a", "x"): 4}, [])


def test_a_removed_listener_is_not_notified(encoding: Encoding) -> None:
    store = filled(10, encoding=encoding)
    recorder = RecordedInputs(store)
    store.forget(recorder)
    tell(store, "ADDED", Toy(version=11))
    assert recorder.heard == []


async def test_waiters_are_notified_of_events_bookmarks_and_lists(encoding: Encoding) -> None:
    store = filled(10, encoding=encoding)
    moves: list[Callable[[], None]] = [
        lambda: tell(store, "ADDED", Toy(version=11)),
        lambda: store.advance(12),
        lambda: fill(store, 12, Toy(version=11), encoding=encoding),
        lambda: store.amend(Toy(version=11, app="ours").raw(encoding)),
    ]
    for move in moves:
        waiting = store.next_update()
        await asyncio.sleep(0)
        assert not waiting.done()
        move()
        await asyncio.wait_for(waiting, 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "x"),
        ("metadata.namespace", "a"),
        ("spec.clusterIP", "None"),
        ("spec.type", ""),
        ("no.such.field", ""),
    ],
)
def test_fields_of_selectors_are_read_by_path(encoding: Encoding, path: str, value: str) -> None:
    def item_of(toy: Toy) -> Item:
        item = filled(toy.version, toy, encoding=encoding).get(toy.key)
        assert item is not None
        return item

    item = item_of(Toy("x", "a", 3, address="None"))
    assert item.field(path) == value
    assert item.field(path) == value  # the cached value


@given(
    lists=st.lists(
        st.lists(st.tuples(st.sampled_from("wxyz"), st.integers(0, 9)), unique_by=lambda pair: pair[0]),
        min_size=2,
        max_size=4,
    )
)
def test_notified_changes_lead_from_each_list_to_the_next(
    encoding: Encoding, lists: list[list[tuple[str, int]]]
) -> None:
    """A listener that applies all changes to the first list has the last list. Versions never decrease."""
    store = Store()
    state: dict[Key, int] = {}
    for number, listed in enumerate(lists):
        # An object has its former version, or one since the last list: 10 is the first list's, 20 the second's.
        toys = [Toy(name, version=10 * number + at if at or not number else 1) for name, at in listed]
        recorder = RecordedInputs(store)
        before = store.version
        fill(store, 10 * number + 10, *toys, encoding=encoding)
        versions = [change.version for change in recorder.changes]
        assert versions == sorted(versions)
        assert not number or all(version == 1 or before <= version <= store.version for version in versions)
        if not number:
            state = contents(store)
        for change in recorder.changes:
            assert state.get(change.key) == (change.old.version if change.old else None)
            if change.new is None:
                del state[change.key]
            else:
                state[change.key] = change.new.version
        assert state == contents(store) == {toy.key: toy.version for toy in toys}
        store.forget(recorder)


def test_a_large_text_object_is_stored_compressed(encoding: Encoding) -> None:
    store = filled(10, Toy("x", version=4, app="x" * 20_000), encoding=encoding)
    item = store.get(("a", "x"))
    assert item is not None
    for stored in (item.stored, item.with_version(7).stored, item.as_filtered(item.raw).stored):
        assert len(stored) == len(item.raw)
        assert (sys.getsizeof(stored) < len(item.raw) / 10) == (encoding is Encoding.JSON)


def test_an_object_changed_by_filters_is_stored_compressed(encoding: Encoding) -> None:
    """Clients get the filtered object."""
    store = filled(10, Toy("x", version=4, app="x" * 20_000), encoding=encoding)
    item = store.get(("a", "x"))
    assert item is not None
    before = item.raw
    item.as_filtered(before)
    assert item.raw == before
    assert len(item.stored) == len(before)
    assert sys.getsizeof(item.stored) < len(before) / 10


def test_objects_are_in_the_order_of_etcds_keys(encoding: Encoding) -> None:
    """A hyphen sorts before the slash after a namespace."""
    store = filled(10, Toy("m", version=4), Toy("z", version=5), encoding=encoding)
    tell(store, "ADDED", Toy("b", version=11, namespace="a-b"))
    tell(store, "ADDED", Toy("a", version=12))
    tell(store, "DELETED", Toy("m", version=13))
    tell(store, "ADDED", Toy("m", version=14))
    assert list(contents(store)) == [("a-b", "b"), ("a", "a"), ("a", "m"), ("a", "z")]
