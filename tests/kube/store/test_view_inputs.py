"""Changes of inputs and rules: their effect on open watches, on resumed ones, and on clients with another view's
versions."""

from __future__ import annotations

import pytest

from kube.store.listing import Form
from kube.store.projection import InputKey, Projection
from kube.store.view import View
from tests.kube.support.toys import (
    Toy,
    ToyChain,
    WatchClient,
    body_of,
    events_of,
    filled,
    pending_events,
    pending_frames,
    refusal,
    scope,
    short,
    tell,
    view_of,
    watching,
)

INPUT = ("p", "i")


# -- inputs --------------------------------------------------------------------------------------------------------


async def test_input_changes_are_sent_at_the_objects_version_with_a_bookmark() -> None:
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store, inputs)
    client = watching(view)
    for verdict, event_type in (("drop", "DELETED"), ("keep", "ADDED"), ("10.9.9.9", "MODIFIED")):
        inputs[INPUT] = verdict
        view.projection.inputs_changed([INPUT])
        assert pending_events(client) == [(event_type, "x", 4), ("BOOKMARK", "", 10)]
    assert client.state["a", "x"].address == "10.9.9.9"


async def test_a_watch_resumed_at_a_version_gets_the_input_changes_at_that_version() -> None:
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store, inputs)
    client = watching(view)
    client.close()
    inputs[INPUT] = "drop"
    view.projection.inputs_changed([INPUT])
    tell(store, "ADDED", Toy("y", version=11))
    client.watch()
    assert [event for event in pending_events(client) if event[0] != "BOOKMARK"] == [
        ("DELETED", "x", 4),
        ("ADDED", "y", 11),
    ]


async def test_an_input_reaches_a_client_whose_list_was_newer_than_the_store() -> None:
    """A consistent list of a quiet resource has the cloud's version, which no event has reached yet."""
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store, inputs)
    client = WatchClient(view)
    client.take_list(at_least=15)
    client.watch()
    inputs[INPUT] = "drop"
    view.projection.inputs_changed([INPUT])
    client.drain()
    assert client.state == {}


async def test_no_bookmark_is_older_than_a_list_of_the_view() -> None:
    store = filled(10)
    view = view_of(store, {})
    client = WatchClient(view)
    client.take_list(at_least=15)
    client.watch()
    view.send_bookmark()
    client.drain()
    assert client.version == 15


async def test_the_first_event_of_a_filtered_view_is_sent_once_to_a_client() -> None:
    store = filled(10)
    client = watching(view_of(store, {}))
    tell(store, "ADDED", Toy("x", version=11))
    assert pending_events(client) == [("ADDED", "x", 11)]
    client.close()
    client.watch()
    assert pending_events(client) == []


async def test_an_object_with_an_unknown_input_is_not_sent() -> None:
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store, inputs)
    client = watching(view)
    del inputs[INPUT]
    view.projection.inputs_changed([INPUT])
    tell(store, "MODIFIED", Toy("x", version=11, reads="i", address="10.0.0.2"))
    tell(store, "ADDED", Toy("y", version=12, reads="i"))
    assert pending_events(client) == []
    inputs[INPUT] = "keep"
    view.projection.inputs_changed([INPUT])
    assert pending_events(client) == [("MODIFIED", "x", 11), ("ADDED", "y", 12), ("BOOKMARK", "", 12)]


@pytest.mark.parametrize("since", [10, 15])
async def test_a_new_filtered_view_corrects_clients_of_former_inputs(since: int) -> None:
    """A client of the previous process may have this version, or a later one if the disk was behind."""
    projection = Projection(filled(10, Toy("x", version=4, reads="i")), ToyChain("p", {INPUT: "drop"}))
    view = View(projection, scope(), Form(metadata_only=False), lambda: 15)
    if since > 10:
        assert refusal(lambda: view.watch(since, bookmarks=True)) == 410
    else:
        first = events_of(view, view.watch(since, bookmarks=True).initial_events())
        assert [short(each) for each in first] == [("DELETED", "x", 4), ("BOOKMARK", "", 10)]


async def test_a_recreated_view_lets_a_client_resume_from_its_list() -> None:
    client = watching(view_of(filled(10), {}))
    assert pending_events(client) == []


@pytest.mark.parametrize("amends", [False, True])
async def test_a_local_change_ends_a_watch_at_a_future_version(amends: bool) -> None:
    """The local change applies to an older object than the client may have."""
    inputs: dict[InputKey, str] = {INPUT: "keep"}
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store, inputs)
    body_of(view)
    watcher = view.watch(12, bookmarks=True)
    if amends:
        store.amend(Toy("x", version=4, reads="i", address="None").raw(store.codec.encoding))
    else:
        inputs[INPUT] = "drop"
        view.projection.inputs_changed([INPUT])
    assert refusal(lambda: pending_frames(watcher)) == 410


async def test_a_client_ahead_of_the_store_gets_bookmarks_at_its_own_version_only() -> None:
    """The cloud confirmed 15 to another client. Objects that this client has at 12 may have been deleted since."""
    store = filled(10, Toy("x", version=4))
    view = view_of(store)
    body_of(view)
    ahead, ended = view.watch(12, bookmarks=True), view.watch(12, bookmarks=True)
    view.listing(confirmed=15)
    ended.end()
    ahead.send_bookmark()
    bookmarks = [
        short(event) for each in (ahead, ended) for event in events_of(view, pending_frames(each) or [])
    ]
    assert bookmarks == [("BOOKMARK", "", 12)] * 2
    tell(store, "ADDED", Toy("y", version=11))
    tell(store, "DELETED", Toy("y", version=13))
    late = [short(each) for each in events_of(view, pending_frames(ahead) or [])]
    assert late == [("DELETED", "y", 13)], "it has seen the event of 11"


# -- rules ---------------------------------------------------------------------------------------------------------


async def test_a_client_disconnected_during_a_switch_gets_deletions_of_trimmed_events() -> None:
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store)
    body_of(view)
    view.switch(Projection(store, ToyChain("p", {INPUT: "drop"})))
    tell(store, "ADDED", Toy("y", version=11))
    view.log.trim(0, 0)
    first = events_of(view, view.watch(10, bookmarks=True).initial_events())
    assert [short(each) for each in first] == [("DELETED", "x", 4), ("ADDED", "y", 11), ("BOOKMARK", "", 11)]


async def test_a_switch_of_chains_sends_only_the_difference() -> None:
    store = filled(
        10, Toy("same", version=1), Toy("hidden", version=2, reads="i"), Toy("changed", version=3, reads="j")
    )
    view = view_of(store)
    client = watching(view)
    filtered = Projection(store, ToyChain("p", {INPUT: "drop", ("p", "j"): "10.9.9.9"}))
    unfiltered = view.projection
    view.switch(filtered)
    assert not unfiltered.in_use
    assert pending_events(client) == [
        ("MODIFIED", "changed", 3),
        ("DELETED", "hidden", 2),
        ("BOOKMARK", "", 10),
    ]
    view.switch(unfiltered)
    assert pending_events(client) == [
        ("MODIFIED", "changed", 3),
        ("ADDED", "hidden", 2),
        ("BOOKMARK", "", 10),
    ]


async def test_after_a_switch_only_the_new_chain_is_evaluated() -> None:
    store = filled(10, Toy("x", version=4, reads="i"))
    old: dict[InputKey, str] = {INPUT: "keep"}
    new: dict[InputKey, str] = {INPUT: "keep"}
    view = view_of(store, old)
    client = watching(view)
    before = view.projection
    view.switch(Projection(store, ToyChain("p", new)))
    old[INPUT] = "drop"
    before.inputs_changed([INPUT])
    assert pending_events(client) == []
    new[INPUT] = "drop"
    view.projection.inputs_changed([INPUT])
    assert pending_events(client) == [("DELETED", "x", 4), ("BOOKMARK", "", 10)]


async def test_a_client_disconnected_during_a_switch_is_corrected() -> None:
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store)
    client = watching(view)
    client.close()
    view.switch(Projection(store, ToyChain("p", {INPUT: "drop"})))
    client.watch()
    assert (client.state, client.version) == ({}, 10)


async def test_a_slow_client_reads_the_former_log_before_the_difference_of_a_switch() -> None:
    store = filled(10, Toy("x", version=4, reads="i"))
    view = view_of(store)
    slow, ended = watching(view), watching(view)
    tell(store, "ADDED", Toy("y", version=11))
    assert ended.watcher is not None
    ended.watcher.end()
    view.switch(Projection(store, ToyChain("p", {INPUT: "drop"})))
    tell(store, "ADDED", Toy("z", version=12))
    y, x, z = ("ADDED", "y", 11), ("DELETED", "x", 4), ("ADDED", "z", 12)
    assert pending_events(slow) == [y, x, z, ("BOOKMARK", "", 12)]
    assert pending_events(ended) == [y, ("BOOKMARK", "", 11)]
