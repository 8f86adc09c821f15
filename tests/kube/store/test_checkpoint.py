"""A process after a crash: the clients that resume by a checkpoint, and those that get a correction."""

from __future__ import annotations

import pytest

from addons.rules.issued_versions import ANY_VERSION
from kube.store.listing import FULL_OBJECTS
from kube.store.projection import InputKey, Projection
from kube.store.resumption import MAX_HIDDEN, Checkpoint, Resumption
from kube.store.scope import EVERYTHING
from kube.store.store import Store
from kube.store.view import View
from tests.kube.support.toys import Toy, ToyChain, events_of, fill, short, tell

ANY = 1000
"""The newest version that clients may have, while it is unknown."""
HELD, OTHER = Toy("x", version=8, reads="i"), Toy("y", version=9)

type Inputs = dict[InputKey, str]


def projection_of(store: Store, inputs: Inputs) -> Projection:
    return Projection(store, ToyChain("p", inputs))


def crashed(store: Store, inputs: Inputs, former: Checkpoint | None) -> View:
    """Return the view of the next process, with the store from disk and these inputs."""
    restored = Store()
    raws = [item.raw for item in store]
    restored.replace(store.codec, store.api_version, store.kind, store.version, raws)
    restored.history.recall(store.history.past(store.version))
    projection = projection_of(restored, inputs)
    projection.former = former
    return View(projection, EVERYTHING, FULL_OBJECTS, elsewhere=lambda: ANY)


def begins(view: View, since: int) -> list[tuple[str, str, int]]:
    """Return the events that a client of this version gets at once, without the bookmark."""
    watcher = view.watch(since, bookmarks=False)
    return [short(event) for event in events_of(view, watcher.initial_events())]


@pytest.fixture
def store() -> Store:
    made = Store()
    fill(made, 9, HELD, OTHER)
    made.advance(10)
    return made


@pytest.mark.parametrize("verdict", ["keep", "drop", "10.9.9.1"])
def test_a_client_resumes_if_the_inputs_are_unchanged(store: Store, verdict: str) -> None:
    inputs: Inputs = {("p", "i"): verdict}
    view = crashed(store, inputs, projection_of(store, inputs).checkpoint(0))
    assert view.judge(10) is Resumption.REPEAT
    assert begins(view, 10) == []


@pytest.mark.parametrize("verdict", ["drop", "10.9.9.1"])
def test_a_client_is_corrected_if_an_input_changed_meanwhile(store: Store, verdict: str) -> None:
    former = projection_of(store, {("p", "i"): "keep"}).checkpoint(0)
    assert crashed(store, {("p", "i"): verdict}, former).judge(10) is Resumption.CORRECT


def test_a_client_that_disconnected_before_an_input_change_is_corrected(store: Store) -> None:
    inputs: Inputs = {("p", "i"): "keep"}
    projection = projection_of(store, inputs)
    inputs["p", "i"] = "drop"
    projection.inputs_changed([("p", "i")])
    view = crashed(store, inputs, projection.checkpoint(0))
    assert view.judge(10) is Resumption.CORRECT


def test_the_state_of_clients_up_to_a_version_from_elsewhere_is_unknown(store: Store) -> None:
    inputs: Inputs = {("p", "i"): "keep"}
    assert crashed(store, inputs, projection_of(store, inputs).checkpoint(10)).judge(10) is Resumption.CORRECT


def test_a_client_that_got_no_event_of_hidden_objects_resumes(store: Store) -> None:
    inputs: Inputs = {("p", "i"): "drop"}
    projection = projection_of(store, inputs)
    tell(store, "MODIFIED", Toy("x", version=12, reads="i"))
    view = crashed(store, inputs, projection.checkpoint(0))
    assert view.judge(10) is Resumption.REPEAT
    # The client may have it from before its labels changed, so it is named.
    assert begins(view, 10) == [("DELETED", "x", 12)]
    assert begins(view, 12) == []


def test_a_correction_omits_objects_already_hidden_before_the_restart(store: Store) -> None:
    """The client never got it, so there is nothing to delete."""
    tell(store, "ADDED", Toy("secret", version=11, reads="always"))
    inputs: Inputs = {("p", "always"): "drop", ("p", "i"): "keep"}
    former = projection_of(store, inputs).checkpoint(0)
    view = crashed(store, inputs | {("p", "i"): "drop"}, former)
    assert view.judge(11) is Resumption.CORRECT
    assert begins(view, 11) == [("DELETED", "x", 8), ("ADDED", "y", 9)], "the client may have seen x"


async def test_a_correction_names_hidden_objects_that_the_client_may_have(store: Store) -> None:
    """The client is older, the object has another state, an input changed in this process, or there were too many
    objects to record."""
    tell(store, "ADDED", Toy("secret", version=11, reads="always"))
    inputs: Inputs = {("p", "always"): "drop", ("p", "i"): "keep"}
    former = projection_of(store, inputs).checkpoint(10)
    assert former is not None
    others = inputs | {("p", "i"): "drop"}
    named = ("DELETED", "secret", 11)
    assert named in begins(crashed(store, others, former._replace(last_incompatible=11)), 11), (
        "from before an input changed"
    )
    assert named in begins(crashed(store, others, former._replace(hidden=())), 11), "too many were hidden"
    assert named in begins(crashed(store, others, None), 11), "nobody knows"
    changed = crashed(store, others, former)
    tell(changed.projection.store, "MODIFIED", Toy("secret", version=12, reads="always"))
    assert ("DELETED", "secret", 12) in begins(changed, 11), "it may have been shown between"
    here: Inputs = others | {("p", "always"): "keep"}
    again = crashed(store, here, former)
    assert ("ADDED", "secret", 11) in begins(again, 11)
    here["p", "always"] = "drop"
    again.projection.inputs_changed([("p", "always")])
    assert named in begins(again, 11), "a client of this process has it"


def test_a_checkpoint_names_hidden_objects_up_to_a_bound(store: Store) -> None:
    inputs: Inputs = {("p", "i"): "drop"}
    projection = projection_of(store, inputs)
    for number in range(MAX_HIDDEN):
        made = projection.checkpoint(0)
        assert made is not None
        assert len(made.hidden) == number + 1
        assert made.has_hidden(HELD.key)
        assert not made.has_hidden(OTHER.key)
        tell(store, "ADDED", Toy(f"more-{number}", version=20 + number, reads="i"))
    assert (last := projection.checkpoint(0)) is not None
    assert not last.hidden
    tell(store, "DELETED", Toy("more-0", version=1000, reads="i"))
    assert (last := projection.checkpoint(0)) is not None
    assert len(last.hidden) == MAX_HIDDEN


def test_a_change_after_the_checkpoint_is_sent_again_in_its_current_state(store: Store) -> None:
    """The checkpoint does not record the former process's result for it."""
    inputs: Inputs = {("p", "j"): "keep", ("p", "i"): "keep"}
    former = projection_of(store, inputs).checkpoint(0)
    view = crashed(store, inputs | {("p", "j"): "drop"}, former)
    late = Toy("late", version=12, reads="j")
    tell(view.projection.store, "ADDED", late)
    tell(view.projection.store, "MODIFIED", Toy("y", version=13))
    assert view.judge(13) is Resumption.REPEAT
    assert begins(view, 13) == [("DELETED", "late", 12), ("ADDED", "y", 13)]


def test_a_checkpoint_survives_two_restarts(store: Store) -> None:
    inputs: Inputs = {("p", "i"): "drop"}
    view = crashed(store, inputs, projection_of(store, inputs).checkpoint(0))
    again = crashed(view.projection.store, inputs, view.projection.checkpoint(ANY))
    assert again.judge(10) is Resumption.REPEAT
    tell(view.projection.store, "MODIFIED", Toy("y", version=11))
    last = view.projection.checkpoint(11)
    assert last is not None
    assert (last.version, last.last_incompatible) == (11, 11), (
        "of clients from before the crash nothing is known any more"
    )
    assert view.projection.checkpoint(ANY_VERSION) is None
