"""What leaves the journal leaves the disk before anything newer goes out, so that no kill brings it back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from addons.offline.writes.journal import DURABLE_WAIT
from tests.addons.offline.writes.test_journal import EVENT_BODY, NODE, put_event, status
from tests.addons.support.devices import Device
from tests.addons.support.observed import until
from tests.addons.support.offline_parts import journal_in


@pytest.mark.looptime
async def test_a_newer_write_waits_until_the_older_has_left_the_disk(tmp_path: Path) -> None:
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
async def test_a_replay_waits_until_a_newer_status_has_gone_over_the_older_one_on_disk(
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
async def test_a_disk_that_stands_still_holds_a_newer_write_up_for_a_second_and_once(tmp_path: Path) -> None:
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
async def test_what_a_full_disk_cannot_delete_is_not_replayed_after_a_kill(
    tmp_path: Path, is_superseded: bool
) -> None:
    """The next process replayed an old status and an old count over newer ones."""
    device = Device(tmp_path)
    async with journal_in(tmp_path, device) as killed:
        entry, event = killed.put_status(status("old")), put_event(killed, EVENT_BODY)
        await until(lambda: not killed.describe()["unwritten"])
        device.is_broken = True  # no room for anything
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


async def test_what_is_read_from_disk_may_have_been_sent(tmp_path: Path) -> None:
    """A hub that was killed does not know: the former status must go over what it sent."""
    async with journal_in(tmp_path) as journal:
        await journal.wait_written(journal.put_status(status("middle")))
    async with journal_in(tmp_path) as again:
        entry = again.put_status(status("cloud", before="middle"))
        assert entry.patch == {"status": {"phase": "cloud"}}
        await again.wait_written(entry)
    async with journal_in(tmp_path) as third:
        assert third.statuses[NODE].patch == {"status": {"phase": "cloud"}}
