"""A projection judges long lists, and what an input touches, in slices between which the event loop serves others."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.store.projection import BYTES_AT_ONCE, EVALUATED_AT_ONCE, InputKey, Projection
from kube.store.store import Store
from tests.kube.store.test_projection import INPUT, Steps, address, judge_rest, project, shown
from tests.kube.support.toys import Toy, filled, tell


def sliced(store: Store, inputs: dict[InputKey, str], size: int) -> tuple[Projection, Steps]:
    """A projection that has judged its first slice."""
    with patch("kube.store.projection.EVALUATED_AT_ONCE", size):
        return project(store, inputs)


def test_a_long_list_is_judged_a_slice_at_a_time_and_not_shown_until_then() -> None:
    store = filled(10, *(Toy(f"t{number}", reads="i") for number in range(EVALUATED_AT_ONCE * 2 + 1)))
    projection, steps = project(store, {INPUT: "keep"})
    for judged in (EVALUATED_AT_ONCE, 2 * EVALUATED_AT_ONCE):
        assert (projection.evaluations, projection.is_pending, len(shown(projection))) == (
            judged,
            True,
            judged,
        )
        projection.evaluate_some()
    assert (projection.is_evaluated, projection.is_pending, len(shown(projection))) == (
        True,
        False,
        len(store),
    )
    projection.evaluate_some()
    assert (projection.evaluations, steps.notified) == (len(store), [])


@pytest.mark.parametrize(("size", "at_once"), [(0, EVALUATED_AT_ONCE), (BYTES_AT_ONCE // 2, 2)])
def test_objects_touched_by_an_input_are_evaluated_in_slices(size: int, at_once: int) -> None:
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
    with patch("kube.store.projection.EVALUATED_AT_ONCE", 1):
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
                    with patch("kube.store.projection.EVALUATED_AT_ONCE", len(store)):
                        late.inputs_changed([INPUT])
                        early.inputs_changed([INPUT])
            assert shown(late).items() <= shown(early).items()
        judge_rest(late)
    assert shown(late) == shown(early)
    # Listeners of the cloud's events got the same.
    notified = [step for step in late_steps.steps if not step.is_local]
    wanted = [step for step in early_steps.steps if not step.is_local]
    assert [(each.version, each.key, address(each.before), address(each.after)) for each in notified] == [
        (each.version, each.key, address(each.before), address(each.after)) for each in wanted
    ]
