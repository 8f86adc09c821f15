"""The journal of writes for the cloud: the latest status of each object, events in order, kills and failing disks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import diskcache
import pytest

from addons.offline.writes.journal import DURABLE_WAIT, MAX_EVENTS, MAX_USER_EVENTS, TABLE, Journal
from addons.offline.writes.journal_entries import EVENT, STATUS, EventEntry, StatusEntry
from addons.telemetry import metrics
from kube.disk.database import Cache, Disk, TableChanges
from kube.json_type import Json
from tests.addons.support.devices import Device
from tests.addons.support.observed import notifications_of, until, value_of
from tests.addons.support.offline_parts import journal_in
from tests.addons.support.refusals import refuses

NODE = "/api/v1/nodes/n1"
EVENTS = "/api/v1/namespaces/a/events"


def status(phase: str, before: str = "cloud", uid: str = "u", path: str = NODE) -> StatusEntry:
    return StatusEntry(path, "Node", uid, document(before), document(phase))


def document(phase: str) -> Json:
    return {"metadata": {"name": "n1"}, "status": {"phase": phase}}


def put_event(journal: Journal, body: bytes) -> EventEntry:
    return journal.put_event("POST", EVENTS, "application/json", body)


EVENT_BODY = b'{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"}}'


def bodies(journal: Journal) -> list[bytes]:
    return [each.body for each in journal.events.values()]


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with journal_in(tmp_path) as made:
        yield made


# -- pending entries -----------------------------------------------------------------------------------------------


async def test_the_latest_status_replaces_earlier_ones_and_retains_the_base(journal: Journal) -> None:
    journal.put_status(status("one"))
    entry = journal.put_status(status("two", before="one"))
    assert list(journal.statuses.values()) == [entry]
    assert (entry.before, entry.after) == (document("cloud"), document("two"))


async def test_a_new_object_of_the_same_name_gets_a_new_base(journal: Journal) -> None:
    journal.put_status(status("one"))
    entry = journal.put_status(status("two", before="its own", uid="other"))
    assert list(journal.statuses.values()) == [entry]
    assert (entry.uid, entry.before) == ("other", document("its own"))


async def test_events_are_ordered_and_the_oldest_are_evicted_beyond_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.writes.journal.MAX_EVENTS", 3)
    dropped = metrics.JOURNAL_DROPPED.labels(EVENT, "no room")
    before = value_of(dropped)
    async with journal_in(tmp_path) as journal:
        for number in range(5):
            last = put_event(journal, b"%d" % number)
        assert bodies(journal) == [b"2", b"3", b"4"]
        assert value_of(dropped) - before == 2
        assert value_of(metrics.JOURNAL_ENTRIES) == 3
        await journal.wait_written(last)
    async with journal_in(tmp_path) as again:
        assert bodies(again) == [b"2", b"3", b"4"], "on disk too"


async def test_each_new_entry_notifies_waiters(journal: Journal) -> None:
    count = notifications_of(journal.added)
    journal.remove(journal.put_status(status("one")))
    put_event(journal, b"x")
    assert count() == 2


async def test_a_replayed_entry_is_removed(journal: Journal) -> None:
    entry, event = journal.put_status(status("one")), put_event(journal, b"x")
    journal.remove(entry)
    journal.remove(event)
    journal.remove(event)
    assert (journal.statuses, journal.events) == ({}, {})
    assert value_of(metrics.JOURNAL_ENTRIES) == 0


async def test_a_newer_entry_stays_when_the_earlier_one_is_replayed(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        sent = journal.put_status(status("sent"))
        newer = journal.put_status(status("newer", before="sent"))
        journal.remove(sent)
        assert list(journal.statuses.values()) == [newer]
        await journal.wait_written(newer)
    async with journal_in(tmp_path) as again:
        assert list(again.statuses.values()) == [newer]


async def test_the_report_of_the_journal_shows_no_content(journal: Journal) -> None:
    journal.put_status(status("secret"))
    put_event(journal, b"secret")
    assert journal.describe() == {"statuses": [NODE], "events": 1, "unwritten": 2}


# -- after a restart -----------------------------------------------------------------------------------------------


async def test_written_entries_survive_a_kill(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as killed:
        statuses = [killed.put_status(status(path, path=f"{NODE}-{path}")) for path in "ab"]
        # A body may have any bytes, line breaks too.
        events = [put_event(killed, body) for body in (b"first\n\n{", b"k8s\x00\n\xff", b"")]
        killed.remove(put_event(killed, b"sent already"))
        for entry in statuses:
            await killed.wait_written(entry)
        for event in events:
            await killed.wait_written(event)
        await until(lambda: not killed.describe()["unwritten"])
        async with journal_in(tmp_path) as again:
            assert list(again.statuses.values()) == statuses
            assert list(again.events.values()) == events
            assert value_of(metrics.JOURNAL_ENTRIES) == 5
            assert put_event(again, b"next").sequence > events[-1].sequence


async def test_events_of_users_are_evicted_before_those_of_the_node(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        for number in range(MAX_USER_EVENTS + 5):
            journal.put_event("POST", EVENTS, "application/json", b"%d" % number, "pod")
        assert bodies(journal) == [b"%d" % number for number in range(5, MAX_USER_EVENTS + 5)]
        for number in range(MAX_EVENTS):
            put_event(journal, b"%d" % number)
            journal.put_event("POST", EVENTS, "application/json", b"", f"user {number}")
        assert {event.user for event in journal.events.values()} == {""}
        assert len(journal.events) == MAX_EVENTS


async def test_the_user_of_an_event_survives_a_restart(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        event = journal.put_event("POST", EVENTS, "application/json", EVENT_BODY, "pod")
        await journal.wait_written(event)
    async with journal_in(tmp_path) as again:
        assert list(again.events.values()) == [event]


async def test_events_of_a_long_journal_are_loaded_in_order(tmp_path: Path) -> None:
    async with journal_in(tmp_path) as journal:
        for number in range(120):
            put_event(journal, b"%d" % number)
    async with journal_in(tmp_path) as again:
        assert bodies(again) == [b"%d" % number for number in range(120)]


async def test_pending_entries_are_moved_from_a_replaced_database(tmp_path: Path) -> None:
    """The database was moved aside with all its pending entries unread."""
    async with journal_in(tmp_path) as journal:
        entry, event = journal.put_status(status("one")), put_event(journal, EVENT_BODY)
    with diskcache.Cache(str(tmp_path / "cache")) as cache:
        cache.set("format", b"another")
    async with journal_in(tmp_path) as again:
        assert (list(again.statuses.values()), list(again.events.values())) == ([entry], [event])
    assert (tmp_path / "cache.unreadable").exists()


async def test_an_unreadable_entry_is_dropped_and_counted_and_does_not_affect_the_rest(
    tmp_path: Path,
) -> None:
    async with journal_in(tmp_path) as journal:
        entry, event = journal.put_status(status("one")), put_event(journal, b"x")
    disk = Disk(tmp_path / "cache")
    unreadable = {
        "status /a": b"",
        "status /b": b"{",
        "status /c": b"[]",
        "status /d": b"{}",
        "status /e": b"7",
        "status /f": b'"abcde"',
        "status /g": b'["/g","Node","u",{}]',
        "status /h": b'["/h","Node","u",[],{}]',
        "status /i": b'["/i","Node",null,{},{}]',
        "event 0000000000000003": b'[3,"POST","/x"]\n{}',
        "event 0000000000000004": b'[4,"POST",null,"application/json"]\n{}',
    }
    disk.write({TABLE: TableChanges(unreadable)})
    disk.close()
    counters = [metrics.JOURNAL_DROPPED.labels(kind, "unreadable") for kind in (STATUS, EVENT)]
    before = [value_of(each) for each in counters]
    async with journal_in(tmp_path) as again:
        assert (list(again.statuses.values()), list(again.events.values())) == ([entry], [event])
        assert [value_of(each) - was for each, was in zip(counters, before, strict=True)] == [9, 2]
    async with journal_in(tmp_path) as third:
        assert value_of(counters[0]) - before[0] == 9, "it is off the disk"
        assert list(third.statuses.values()) == [entry]


# -- a disk that fails ---------------------------------------------------------------------------------------------


async def test_pending_entries_stay_in_memory_without_a_disk(tmp_path: Path) -> None:
    def no_disk(_: Path) -> Cache:
        raise OSError(30, "Read-only file system")

    async with journal_in(tmp_path, Disk(tmp_path / "cache", no_disk)) as journal:
        journal.put_status(status("one"))
        assert list(journal.statuses) == [NODE]


@pytest.mark.looptime
async def test_a_stalled_disk_delays_a_client_by_a_second_at_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = Device(tmp_path)
    loop = asyncio.get_running_loop()
    async with journal_in(tmp_path, device) as journal:
        device.goes_on.clear()
        entry = put_event(journal, b"x")
        began = loop.time()
        await journal.wait_written(entry)
        assert loop.time() - began == pytest.approx(DURABLE_WAIT)
        assert list(journal.events.values()) == [entry]
        assert "the disk is slow" in caplog.text
        device.goes_on.set()
    async with journal_in(tmp_path) as again:
        assert list(again.events.values()) == [entry]


# -- bounds --------------------------------------------------------------------------------------------------------


async def test_the_bytes_of_events_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.offline.writes.journal.MAX_EVENT_BYTES", 25)
    async with journal_in(tmp_path) as journal:
        for number in range(5):
            put_event(journal, b"%d" % number * 10)
        assert [body[:1] for body in bodies(journal)] == [b"3", b"4"]
    async with journal_in(tmp_path) as again:
        put_event(again, b"x" * 10)
        assert [body[:1] for body in bodies(again)] == [b"4", b"x"], "those on disk count"


async def test_the_bytes_of_statuses_are_bounded(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = metrics.JOURNAL_DROPPED.labels(STATUS, "no room")
    before = value_of(dropped)
    entry = journal.put_status(status("one"))
    monkeypatch.setattr("addons.offline.writes.journal.MAX_STATUS_BYTES", len(entry.dump()) + 10)
    journal.check_capacity(status("two"))
    with refuses(503):
        journal.check_capacity(replace(status("two"), path="/api/v1/nodes/other"))
    assert value_of(dropped) - before == 1
    journal.remove(entry)
    journal.check_capacity(replace(status("two"), path="/api/v1/nodes/other"))
