"""Projections: their notifications of each change, and evaluation again only if an input changed."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store.change_log import ProjectedChange
from kube.store.projection import EVALUATION_BATCH, EVALUATION_BATCH_BYTES, InputKey, Projection
from kube.store.scope import EVERYTHING, Scope
from kube.store.store import Item, Key, Store
from tests.kube.support.toys import Toy, ToyChain, fill, filled, read, tell

INPUT, OTHER = ("p", "i"), ("p", "j")


class Steps:
    """Record the notifications of a projection: version, key, addresses before and after, and whether an input caused
    it."""

    def __init__(self, projection: Projection, where: Scope = EVERYTHING) -> None:
        self.notified: list[tuple[int, str, str | None, str | None, bool] | str] = []
        self.steps: list[ProjectedChange] = []
        self.hidden: list[int] = []
        projection.listen(self, where)

    def changed(self, step: ProjectedChange) -> None:
        self.steps.append(step)
        self.notified.append(
            (step.version, step.key[1], address(step.before), address(step.after), step.is_local)
        )

    def dropped(self, position: int, change: ProjectedChange) -> None: ...

    def hidden_changed(self, item: Item) -> None:
        self.hidden.append(item.version)

    def gap_recorded(self) -> None:
        self.notified.append("gap recorded")

    def restarted(self) -> None:
        self.notified.append("restarted")


def address(item: Item | None) -> str | None:
    """Return the address, which identifies the state of an object."""
    if item is None:
        return None
    return read(item.store.codec.encoding, "v1", "Service", item.raw)[1].address


def shown(projection: Projection) -> dict[str, str | None]:
    listed = {item.key[1]: address(item) for item in projection}
    for item in projection.store:
        assert address(projection.get(item.key)) == listed.get(item.key[1])
    return listed


def project(store: Store, inputs: dict[InputKey, str] | None) -> tuple[Projection, Steps]:
    projection = Projection(store, None if inputs is None else ToyChain("p", inputs))
    return projection, Steps(projection)


def judge_rest(projection: Projection) -> None:
    while not projection.is_evaluated:
        projection.evaluate_some()


def test_a_chain_shows_changes_and_hides_objects() -> None:
    inputs: dict[InputKey, str] = {INPUT: "drop", OTHER: "10.9.9.9"}
    toys = Toy("kept"), Toy("hidden", reads="i"), Toy("changed", reads="j")
    projection, _ = project(filled(10, *toys), inputs)
    assert projection.filtered
    assert shown(projection) == {"kept": "10.0.0.1", "changed": "10.9.9.9"}
    assert projection.get(("a", "hidden")) is None
    assert projection.get(("a", "unheard of")) is None
    assert projection.outcomes() == (1, 1, 1)


def test_each_transition_of_an_object_through_a_chain_is_notified() -> None:
    """From shown, hidden and changed to each of them; an object that stays hidden is not notified."""
    store = filled(10, Toy("x"))
    projection, steps = project(store, {INPUT: "drop", OTHER: "10.9.9.9"})
    for version, reads in enumerate(("i", "i", "j", "j", "", "j", "i", ""), 11):
        tell(store, "MODIFIED", Toy("x", version=version, reads=reads))
    assert steps.notified == [
        (11, "x", "10.0.0.1", None, False),
        (13, "x", None, "10.9.9.9", False),
        (14, "x", "10.9.9.9", "10.9.9.9", False),
        (15, "x", "10.9.9.9", "10.0.0.1", False),
        (16, "x", "10.0.0.1", "10.9.9.9", False),
        (17, "x", "10.9.9.9", None, False),
        (18, "x", None, "10.0.0.1", False),
    ]
    assert shown(projection) == {"x": "10.0.0.1"}
    assert steps.hidden == [12]


def test_reasons_are_known_while_filters_change_or_hide_an_object() -> None:
    toys = Toy("kept"), Toy("hidden", reads="i"), Toy("changed", reads="j")
    store = filled(10, *toys)
    projection, _ = project(store, {INPUT: "drop", OTHER: "10.9.9.9"})
    assert projection.why(("a", "kept")) == ()
    assert projection.why(("a", "hidden")) == (("toy", "hidden"),)
    assert projection.reasons == {(("toy", "hidden"),): 1, (("toy", "changed"),): 1}
    tell(store, "MODIFIED", Toy("hidden", version=11, reads="j"))
    tell(store, "DELETED", Toy("changed", version=12, reads="j"))
    assert projection.reasons == {(("toy", "changed"),): 1}


def test_a_hidden_object_is_deleted_in_its_shown_state_at_the_new_version() -> None:
    store = filled(10, Toy("x", reads="j"))
    _, steps = project(store, {INPUT: "drop", OTHER: "10.9.9.9"})
    tell(store, "MODIFIED", Toy("x", version=11, reads="i"))
    last = steps.steps[0].last
    assert (address(last), last and last.version) == ("10.9.9.9", 11)


def test_a_deleted_object_is_sent_in_its_last_filtered_state() -> None:
    store = filled(10, Toy("x", reads="j"), Toy("y"), Toy("hidden", reads="i"))
    _, steps = project(store, {INPUT: "drop", OTHER: "10.9.9.9"})
    tell(store, "DELETED", Toy("x", version=11, app="last", reads="j"))
    tell(store, "DELETED", Toy("y", version=12, app="last", reads="i"))
    tell(store, "DELETED", Toy("hidden", version=13, reads="i"))
    assert [step.key[1] for step in steps.steps] == ["x", "y"]
    first, second = steps.steps[0].last, steps.steps[1].last
    assert (address(first), first and first.version, first and first.labels) == (
        "10.9.9.9",
        11,
        {"app": "last"},
    )
    # The last state of y would have been hidden, so it is deleted in its shown state.
    assert (address(second), second and second.version, second and second.labels) == ("10.0.0.1", 12, {})


def test_an_input_change_evaluates_its_readers_and_notifies_visible_differences() -> None:
    inputs: dict[InputKey, str] = {INPUT: "keep", OTHER: "keep"}
    store = filled(10, Toy("x", version=3, reads="i"), Toy("y", version=4, reads="i"), Toy("z", reads="j"))
    projection, steps = project(store, inputs)
    before = projection.evaluations
    inputs[INPUT] = "drop"
    projection.inputs_changed([INPUT, ("p", "nobody reads this")])
    assert projection.evaluations - before == 2
    # A notification caused by an input has the object's own version, and the object is unchanged.
    assert steps.notified == [(3, "x", "10.0.0.1", None, True), (4, "y", "10.0.0.1", None, True)]
    assert [step.last and step.last.version for step in steps.steps] == [3, 4]
    assert shown(projection) == {"z": "10.0.0.1"}


def test_input_changes_without_a_visible_effect_are_not_notified() -> None:
    inputs: dict[InputKey, str] = {INPUT: "10.9.9.9"}
    projection, steps = project(filled(10, Toy("x", reads="i")), inputs)
    projection.inputs_changed([INPUT])
    projection.inputs_changed([OTHER])
    assert steps.steps == []
    assert shown(projection) == {"x": "10.9.9.9"}


def test_an_object_is_not_evaluated_for_an_input_that_it_no_longer_reads() -> None:
    inputs: dict[InputKey, str] = {INPUT: "keep", OTHER: "keep"}
    store = filled(10, Toy("x", reads="i"), Toy("gone", reads="i"))
    projection, _ = project(store, inputs)
    tell(store, "MODIFIED", Toy("x", version=11, reads="j"))
    tell(store, "DELETED", Toy("gone", version=12, reads="i"))
    before = projection.evaluations
    projection.inputs_changed([INPUT])
    assert projection.evaluations == before
    inputs[OTHER] = "drop"
    projection.inputs_changed([OTHER])
    assert shown(projection) == {}


def test_a_new_object_with_an_unknown_input_is_not_shown() -> None:
    inputs: dict[InputKey, str] = {}
    store = filled(10, Toy("old", reads="i"))
    projection, steps = project(store, inputs)
    assert projection.is_pending
    tell(store, "ADDED", Toy("new", version=11, reads="i"))
    assert (shown(projection), steps.steps) == ({}, [])
    inputs[INPUT] = "10.9.9.9"
    projection.inputs_changed([INPUT])
    assert not projection.is_pending
    assert shown(projection) == {"old": "10.9.9.9", "new": "10.9.9.9"}
    assert steps.notified == [(11, "new", None, "10.9.9.9", True), (1, "old", None, "10.9.9.9", True)]


def test_a_shown_object_stays_while_an_input_is_unknown() -> None:
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", reads="i"))
    projection, steps = project(store, inputs)
    del inputs[INPUT]
    projection.inputs_changed([INPUT])
    assert projection.is_pending
    tell(store, "MODIFIED", Toy("x", version=11, reads="i", address="10.0.0.2"))
    assert shown(projection) == {"x": "10.0.0.1"}
    # No visible difference, so no notification.
    assert steps.steps == []
    inputs[INPUT] = "keep"
    projection.inputs_changed([INPUT])
    assert steps.notified == [(11, "x", "10.0.0.1", "10.0.0.2", True)]


def test_an_object_deleted_while_its_input_is_unknown_is_not_shown_unfiltered() -> None:
    inputs: dict[InputKey, str] = {INPUT: "10.9.9.9"}
    store = filled(10, Toy("x", reads="i"))
    projection, steps = project(store, inputs)
    del inputs[INPUT]
    projection.inputs_changed([INPUT])
    tell(store, "DELETED", Toy("x", version=11, reads="i", address="10.6.6.6"))
    assert not projection.is_pending
    last = steps.steps[-1].last
    assert (address(last), last and last.version) == ("10.9.9.9", 11)


def test_a_restart_evaluates_everything_again() -> None:
    inputs: dict[InputKey, str] = {INPUT: "drop"}
    store = filled(50, Toy("x", reads="i"), Toy("y"))
    projection, steps = project(store, inputs)
    fill(store, 20, Toy("x"), Toy("y", reads="i"))
    assert steps.notified == ["restarted"]
    assert shown(projection) == {"x": "10.0.0.1"}
    before = projection.evaluations
    inputs[INPUT] = "keep"
    projection.inputs_changed([INPUT])
    assert projection.evaluations - before == 1
    assert shown(projection) == {"x": "10.0.0.1", "y": "10.0.0.1"}


def test_a_projection_created_before_the_first_list_evaluates_it() -> None:
    store = Store()
    projection, _ = project(store, {INPUT: "drop"})
    fill(store, 20, Toy("x", reads="i"), Toy("y"))
    assert shown(projection) == {"y": "10.0.0.1"}


def test_a_projection_is_in_use_while_it_has_listeners_and_silent_once_closed() -> None:
    projection, steps = project(store := filled(10), None)
    assert projection.in_use
    projection.forget(steps)
    assert not projection.in_use
    projection.listen(steps)
    projection.close()
    tell(store, "ADDED", Toy(version=11))
    assert steps.notified == []


def test_a_bookmark_of_the_cloud_is_not_notified_as_a_change() -> None:
    _, steps = project(store := filled(10), {})
    store.advance(20)
    assert steps.notified == []


MOVES = st.one_of(
    st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "i", "j", "gone"])),
    st.tuples(st.sampled_from([INPUT, OTHER]), st.sampled_from(["keep", "drop", "10.9.9.1", "10.9.9.2"])),
)


@given(moves=st.lists(MOVES, max_size=25), pauses=st.sets(st.integers(11, 35)))
def test_notifications_lead_to_the_state_of_a_new_projection(
    moves: list[tuple[str | InputKey, str]], pauses: set[int]
) -> None:
    """After each operation an old projection, a new one, and a follower of the notifications agree, once the old one
    has evaluated the objects of changed inputs."""
    inputs: dict[InputKey, str] = {INPUT: "keep", OTHER: "drop"}
    store = filled(10)
    projection, steps = project(store, inputs)
    state: dict[Key, str | None] = {}
    for version, (what, how) in enumerate(moves, 11):
        if isinstance(what, str):
            tell(store, "DELETED" if how == "gone" else "MODIFIED", Toy(what, version=version, reads=how))
        else:
            inputs[what] = how
            with patch("kube.store.projection.EVALUATION_BATCH", 1 if pauses else EVALUATION_BATCH):
                projection.inputs_changed([what])
        if version not in pauses:
            judge_rest(projection)
        for step in steps.steps:
            assert state.get(step.key) == address(step.before)
            assert step.last is not None or step.before is None
            state[step.key] = address(step.after)
        steps.steps.clear()
        if projection.is_pending:
            continue
        fresh = Projection(store, ToyChain("p", inputs))
        assert shown(projection) == shown(fresh)
        assert shown(fresh) == {key[1]: found for key, found in state.items() if found is not None}
        fresh.close()


def test_a_local_write_is_a_local_change() -> None:
    store = filled(10, Toy("x", version=4))
    _, steps = project(store, None)
    store.amend(Toy("x", version=4, address="10.0.0.9").raw(store.codec.encoding))
    assert steps.notified == [(4, "x", "10.0.0.1", "10.0.0.9", True)]


# -- long lists, in slices -----------------------------------------------------------------------------------------


def sliced(store: Store, inputs: dict[InputKey, str], size: int) -> tuple[Projection, Steps]:
    """Return a projection that has evaluated only its first slice."""
    with patch("kube.store.projection.EVALUATION_BATCH", size):
        return project(store, inputs)


def progress(projection: Projection) -> tuple[int, bool, int]:
    return projection.evaluations, projection.is_pending, len(shown(projection))


LONG = [Toy(f"t{number}", reads="i") for number in range(EVALUATION_BATCH * 2 + 1)]


def test_a_long_list_is_evaluated_in_slices_and_shown_only_afterwards() -> None:
    projection, steps = project(filled(10, *LONG), {INPUT: "keep"})
    for judged in (EVALUATION_BATCH, 2 * EVALUATION_BATCH):
        assert progress(projection) == (judged, True, judged)
        projection.evaluate_some()
    assert (projection.is_evaluated, progress(projection)) == (True, (len(LONG), False, len(LONG)))
    projection.evaluate_some()
    assert (projection.evaluations, steps.notified) == (len(LONG), [])


def test_the_rest_of_a_list_waits_for_an_input_that_its_first_slice_lacks() -> None:
    inputs: dict[InputKey, str] = {}
    projection, _ = project(filled(10, *LONG), inputs)
    judge_rest(projection)
    assert progress(projection) == (EVALUATION_BATCH, True, 0)
    inputs[INPUT] = "keep"
    projection.inputs_changed([INPUT])
    judge_rest(projection)
    assert progress(projection) == (EVALUATION_BATCH + len(LONG), False, len(LONG))


@pytest.mark.parametrize(("size", "at_once"), [(0, EVALUATION_BATCH), (EVALUATION_BATCH_BYTES // 2, 2)])
def test_objects_affected_by_an_input_are_evaluated_in_slices(size: int, at_once: int) -> None:
    toys = [Toy(f"t{number:03}", reads="i", app="a" * size) for number in range(at_once + 1)]
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    projection, steps = project(filled(10, *toys), inputs)
    judge_rest(projection)
    inputs[INPUT] = "drop"
    projection.inputs_changed([INPUT])
    assert [step.key[1] for step in steps.steps] == [toy.name for toy in toys[:at_once]]
    assert (projection.is_pending, shown(projection)) == (True, {toys[-1].name: toys[-1].address})
    projection.evaluate_some()
    assert (projection.is_pending, shown(projection), len(steps.steps)) == (False, {}, len(toys))


def test_a_change_before_its_slice_is_evaluated_is_notified_against_the_expected_state() -> None:
    store = filled(10, Toy("first", reads="i"), Toy("last", reads="i"))
    projection, steps = sliced(store, {INPUT: "keep"}, 1)
    assert shown(projection) == {"last": "10.0.0.1"}
    tell(store, "MODIFIED", Toy("first", version=11, reads="i", address="10.0.0.2"))
    assert steps.notified == [(11, "first", "10.0.0.1", "10.0.0.2", False)]
    assert not projection.is_pending


@given(
    operations=st.lists(
        st.one_of(
            st.just(("judge", "")),
            st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from("abcde")),
            st.tuples(st.just("input"), st.sampled_from(["keep", "drop", "10.9.9.9"])),
        ),
        max_size=20,
    )
)
def test_slices_evaluated_late_give_the_result_of_one_evaluation(operations: list[tuple[str, str]]) -> None:
    inputs: dict[InputKey, str] = {INPUT: "10.9.9.1"}
    store = filled(10, *(Toy(name, reads="i") for name in "abcd"))
    late, late_steps = sliced(store, inputs, 1)
    early, early_steps = project(store, inputs)
    with patch("kube.store.projection.EVALUATION_BATCH", 1):
        for version, (operation, what) in enumerate(operations, 11):
            match operation:
                case "judge":
                    late.evaluate_some()
                case "put":
                    known = store.get(("a", what)) is not None
                    tell(store, "MODIFIED" if known else "ADDED", Toy(what, version=version, reads="i"))
                case "delete":
                    tell(store, "DELETED", Toy(what, version=version, reads="i"))
                case "input":
                    inputs[INPUT] = what
                    with patch("kube.store.projection.EVALUATION_BATCH", len(store)):
                        late.inputs_changed([INPUT])
                        early.inputs_changed([INPUT])
            assert shown(late).items() <= shown(early).items()
        judge_rest(late)
    assert shown(late) == shown(early)
    # Listeners to the cloud's events got the same notifications.
    notified = [step for step in late_steps.steps if not step.is_local]
    wanted = [step for step in early_steps.steps if not step.is_local]
    assert [(each.version, each.key, address(each.before), address(each.after)) for each in notified] == [
        (each.version, each.key, address(each.before), address(each.after)) for each in wanted
    ]
