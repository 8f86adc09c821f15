"""The journal's entries are deleted from disk in order; a status may change before it is sent to the cloud."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from addons.offline.writes.journal import DURABLE_WAIT
from addons.offline.writes.journal_entries import EventEntry, StatusEntry, parsed
from kube.json_type import Json
from kube.objects.strategic_merge import merge_keys_of, strategic_merge
from kube.store.store import Store
from tests.addons.offline.writes.test_journal import EVENT_BODY, NODE, put_event, status
from tests.addons.support.devices import Device
from tests.addons.support.observed import until
from tests.addons.support.offline_parts import JSON, PROTOBUF, body_of, in_protobuf, journal_in
from tests.addons.support.samples import fill, node, raw


@pytest.mark.looptime
async def test_a_newer_write_waits_until_the_older_is_deleted_from_disk(tmp_path: Path) -> None:
    device = Device(tmp_path)
    async with journal_in(tmp_path, device) as journal:
        entry, event = journal.put_status(status("one")), put_event(journal, EVENT_BODY)
        await until(lambda: not journal.describe()["unwritten"])
        device.goes_on.clear()
        journal.remove(entry)
        journal.remove(event)
        assert journal.is_pending(NODE)
        assert journal.is_pending(event.path)
        waiting = asyncio.gather(journal.wait_forgotten(NODE), journal.wait_forgotten(event.path))
        await asyncio.sleep(0)
        assert not waiting.done()
        device.goes_on.set()
        await waiting
        assert not journal.is_pending(NODE)
        assert not journal.is_pending(event.path)


@pytest.mark.looptime
async def test_a_replay_waits_until_the_newer_status_has_replaced_the_older_on_disk(
    tmp_path: Path,
) -> None:
    device = Device(tmp_path)
    async with journal_in(tmp_path, device) as journal:
        journal.put_status(status("one"))
        await until(lambda: not journal.describe()["unwritten"])
        device.goes_on.clear()
        journal.put_status(status("two", before="one"))
        waiting = asyncio.create_task(journal.wait_forgotten(NODE))
        await asyncio.sleep(0)
        assert not waiting.done()
        device.goes_on.set()
        await waiting


@pytest.mark.looptime
async def test_a_stalled_disk_delays_a_newer_write_for_a_second_and_once(tmp_path: Path) -> None:
    device = Device(tmp_path)
    async with journal_in(tmp_path, device) as journal:
        entry = journal.put_status(status("one"))
        await until(lambda: not journal.describe()["unwritten"])
        device.goes_on.clear()
        journal.remove(entry)
        began = asyncio.get_running_loop().time()
        await journal.wait_forgotten(NODE)
        assert asyncio.get_running_loop().time() - began == pytest.approx(DURABLE_WAIT)
        assert not journal.is_pending(NODE)
        device.goes_on.set()


@pytest.mark.parametrize("is_superseded", [False, True])
async def test_an_entry_deleted_on_a_full_disk_is_not_replayed_after_a_kill(
    tmp_path: Path, is_superseded: bool
) -> None:
    """The next process once replayed an old status and an old count over newer ones."""
    device = Device(tmp_path)
    async with journal_in(tmp_path, device) as killed:
        entry, event = killed.put_status(status("old")), put_event(killed, EVENT_BODY)
        await until(lambda: not killed.describe()["unwritten"])
        device.is_broken = True  # nothing can be written to a full disk
        killed.remove(entry)
        killed.remove(event)
        await asyncio.wait_for(killed.wait_forgotten(NODE), 5)
        await asyncio.wait_for(killed.wait_forgotten(event.path), 5)
        if is_superseded:
            killed.put_status(status("newer", before="old"))
            other = put_event(killed, EVENT_BODY)
            killed.remove(other)
            await asyncio.sleep(0.1)
        async with journal_in(tmp_path) as again:
            assert (again.statuses, again.events) == ({}, {})
            newer = again.put_status(status("newest", before="newer"))
            await again.wait_written(newer)
        async with journal_in(tmp_path) as third:
            assert list(third.statuses.values()) == [newer], "the mark was of the old row alone"


async def test_an_entry_read_from_disk_is_treated_as_possibly_sent(tmp_path: Path) -> None:
    """A hub that was killed does not know whether it had sent the entry: the status must be sent again over it."""
    async with journal_in(tmp_path) as journal:
        await journal.wait_written(journal.put_status(status("middle")))
    async with journal_in(tmp_path) as again:
        entry = again.put_status(status("cloud", before="middle"))
        assert entry.patch == {"status": {"phase": "cloud"}}
        await again.wait_written(entry)
    async with journal_in(tmp_path) as third:
        assert third.statuses[NODE].patch == {"status": {"phase": "cloud"}}


EVENTS = "/api/v1/namespaces/a/events"
EVENT = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}
STATUSES = st.builds(
    lambda conditions, fields: {"status": {"conditions": conditions, **fields}},
    st.lists(
        st.fixed_dictionaries({"type": st.sampled_from("abc"), "status": st.sampled_from("TF")}),
        max_size=3,
        unique_by=lambda condition: condition["type"],
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "phase": st.sampled_from("xy"),
            "config": st.sampled_from([{"a": 1}, {"a": 2}, {"b": 1}, {}]),
        },
    ),
)


def test_other_clients_changes_between_two_copies_are_not_part_of_the_patch() -> None:
    """The cloud refused a patch with the object's former version for ever."""
    before = {"metadata": {"name": "n1", "resourceVersion": "5"}, "spec": {}, "status": {"phase": "x"}}
    others = {"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {"unschedulable": True}}
    entry = StatusEntry("/api/v1/nodes/n1", "Node", "u", before, {**others, "status": {"phase": "y"}})
    assert entry.patch == {"status": {"phase": "y"}}


@pytest.mark.parametrize(("uid", "shown"), [("u", "y"), ("another", "z")])
def test_a_pending_status_is_merged_into_the_object_of_the_cloud(uid: str, shown: str) -> None:
    """A watch that resumes before the replay delivers the cloud's state of the object."""
    entry = StatusEntry(NODE, "Node", "u", {"status": {"phase": "x"}}, {"status": {"phase": "y"}})
    found = node("n1", 9)
    found["metadata"]["uid"] = uid
    store = Store()
    fill(store, [{**found, "status": {"phase": "z"}}], 9)
    item = store.get(("", "n1"))
    assert item is not None
    laid = entry.applied_to(item)
    document = json.loads(laid.raw)
    assert (document["status"]["phase"], laid.version) == (shown, 9)
    assert document["metadata"]["resourceVersion"] == "9"


def _status(**fields: Json) -> Json:
    return {"status": {"conditions": [], **fields}}


@given(STATUSES, st.lists(st.tuples(STATUSES, st.booleans()), max_size=4), STATUSES)
@example(
    _status(config={"a": 1}), [(_status(config={"b": 1}), True), (_status(), False)], _status(config={"a": 1})
)
@example(_status(config={"a": 1}), [(_status(), True)], _status(config={"a": 1}))
def test_lost_responses_never_keep_the_newest_status_from_the_cloud(
    cloud: Json, sent: list[tuple[Json, bool]], newest: Json
) -> None:
    keys = merge_keys_of("Node")
    entry = StatusEntry("/api/v1/nodes/n1", "Node", "u", cloud, cloud)
    for after, is_taken in sent:
        entry = replace(entry, after=after).as_sent()
        cloud = strategic_merge(cloud, entry.patch, keys) if is_taken else cloud
    entry = replace(entry, after=newest)
    found, wanted = strategic_merge(cloud, entry.patch, keys)["status"], newest["status"]
    assert {each["type"]: each["status"] for each in found.pop("conditions", [])} == {
        each["type"]: each["status"] for each in wanted["conditions"]
    }
    # An empty object equals an absent one: no field of the API distinguishes them.
    assert {name: value for name, value in found.items() if value} == {
        name: value for name, value in wanted.items() if value and name != "conditions"
    }


def test_an_entry_survives_encoding_and_decoding() -> None:
    entry = StatusEntry("/api/v1/nodes/n1", "Node", "u", {"status": {"a": 1}}, {"status": {"a": 2}})
    for each in (entry, entry.as_sent()):
        read = parsed(each.dump())
        assert isinstance(read, StatusEntry)
        assert (read, read.sent) == (each, each.sent)
    event = EventEntry.of(7, "POST", EVENTS, PROTOBUF, b"k8s\x00\n\xff")
    assert parsed(event.dump()) == event


@pytest.mark.parametrize(
    ("method", "target", "content_type", "body", "path"),
    [
        ("POST", f"{EVENTS}?x=y", JSON, raw(EVENT), f"{EVENTS}/e"),
        ("POST", EVENTS, PROTOBUF, body_of(in_protobuf("v1", "Event", "e", "a")), f"{EVENTS}/e"),
        ("POST", EVENTS, JSON, b"{", ""),
        ("POST", EVENTS, "text/plain", b"x", ""),
        ("PATCH", f"{EVENTS}/e?fieldManager=x", JSON, b"{", f"{EVENTS}/e"),
    ],
)
def test_the_event_key_is_read_from_the_request(
    method: str, target: str, content_type: str, body: bytes, path: str
) -> None:
    assert EventEntry.of(1, method, target, content_type, body).path == path
