"""A write-behind table: batches for bursts, immediate writes for urgent changes, no losses on a failing disk,
bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.pending_rows import MAX_UNWRITTEN, ROW_OVERHEAD
from addons.offline.tables.write_behind import FLUSH_DELAY, WriteBehind
from addons.telemetry import metrics
from kube.bounds import listen
from kube.disk.database import Batch, TableChanges
from kube.disk.marks import MAX_MARKS
from tests.addons.support.devices import Device, marked
from tests.addons.support.observed import ended, until, value_of

ABOUT = "what it is about"


async def rows(access: DiskAccess) -> Mapping[str, bytes | None]:
    return await access.rows("t")


def written(device: Device) -> list[dict[str, object]]:
    """Return the rows of each batch."""
    return [
        {name: value for changes in batch.values() for name, value in changes.rows.items()}
        for batch in device.batches
    ]


async def opened(table: WriteBehind, unwanted: Collection[str] = ()) -> dict[str, bytes | None]:
    """Return the rows left by an earlier process."""
    found: dict[str, bytes | None] = {}

    def take(rows: Mapping[str, bytes | None]) -> Collection[str]:
        found.update(rows)
        return unwanted

    await table.open(take)
    await until(lambda: table.is_read)
    return found


# -- the time of a write -------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_burst_is_one_batch_after_the_linger_time_of_its_first_change(
    access: DiskAccess, device: Device
) -> None:
    table = WriteBehind(access, "t")
    for number in range(4):
        table.put("same", b"%d" % number)
        table.put(f"n{number}", b"")
        await asyncio.sleep(0.9 * FLUSH_DELAY / 4)
    assert (device.batches, table.is_writing) == ([], False)
    await asyncio.sleep(0.1 * FLUSH_DELAY + 0.001)
    await until(lambda: device.batches)
    assert written(device) == [{"same": b"3", "n0": b"", "n1": b"", "n2": b"", "n3": b""}]
    assert device.synced == [False]


@pytest.mark.looptime
async def test_rows_added_during_a_write_wait_for_the_linger_time_too(
    access: DiskAccess, device: Device
) -> None:
    table = WriteBehind(access, "t")
    device.goes_on.clear()
    table.put("first", b"", is_urgent=True)
    await asyncio.sleep(0.001)
    assert table.is_writing
    table.put("second", b"")
    device.goes_on.set()
    await until(lambda: not table.is_writing)
    await asyncio.sleep(0.9 * FLUSH_DELAY)
    assert written(device) == [{"first": b""}]
    table.put("third", b"")
    await table.settled()
    assert written(device) == [{"first": b""}, {"second": b"", "third": b""}]


async def test_urgent_rows_are_written_at_once_and_in_order(access: DiskAccess, device: Device) -> None:
    """The journal confirms a status to a client right after the copy was changed to show it."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    first, second = WriteBehind(access, "t"), marked(access)
    first.put("lingers", b"")
    first.put("a", b"1", is_urgent=True)
    second.put("b", b"2", is_urgent=True)
    await until(lambda: not second.waiting)
    assert written(device) == [{"lingers": b"", "a": b"1"}, {"b": b"2"}]
    assert device.synced == [False, True]


async def test_no_batch_splits_a_change(access: DiskAccess, device: Device) -> None:
    """Under mitmproxy a new task runs at once, up to its first wait."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    table = WriteBehind(access, "t")
    for name in "abc":
        table.put(name, b"", is_urgent=True)
    await table.settled()
    assert [rows.keys() for rows in written(device)] == [{"a", "b", "c"}]


async def test_rows_of_a_linked_table_are_written_in_the_same_batch_or_delay_it(
    access: DiskAccess, device: Device
) -> None:
    is_ready = False

    def batch(changes: TableChanges) -> Batch | None:
        return (
            {"t": changes, "index": TableChanges({"count": b"%d" % len(changes.rows)})} if is_ready else None
        )

    table = WriteBehind(access, "t", batch=batch)
    table.put("a", b"")
    await table.settled()
    is_ready = True
    table.put("b", b"")
    await table.settled()
    assert (await rows(access), await access.rows("index")) == ({"a": b"", "b": b""}, {"count": b"2"})


# -- a disk that fails ---------------------------------------------------------------------------------------------


async def test_rows_refused_by_a_failing_disk_are_written_once_it_is_back(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("addons.offline.tables.write_behind.RETRY", 0.01)
    errors = value_of(metrics.CACHE_WRITE_ERRORS)
    table = WriteBehind(access, "t")
    device.is_broken = True
    table.put("a", b"1", is_urgent=True)
    table.put("b", b"1")
    await until(lambda: value_of(metrics.CACHE_WRITE_ERRORS) > errors + 1)
    table.put("a", b"2")
    assert table.waiting == {"a": b"2", "b": b"1"}
    device.is_broken = False
    await table.settled()
    assert (await rows(access), table.waiting) == ({"a": b"2", "b": b"1"}, {})
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_bug_in_a_write_loses_no_change(access: DiskAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.offline.tables.write_behind.RETRY", 0.0)
    write = access.disk.write
    failed: list[Batch] = []

    def fail_once(batch: Batch, *, is_durable: bool) -> None:
        if not failed:
            failed.append(batch)
            raise LookupError("a bug")
        write(batch, is_durable=is_durable)

    monkeypatch.setattr(access.disk, "write", fail_once)
    table = WriteBehind(access, "t", all_rows=lambda: {"a": b""})
    table.rewrite()
    await table.settled()
    assert failed
    assert await rows(access) == {"a": b""}


async def test_rows_of_a_removed_owner_do_not_overwrite_its_successors(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.tables.write_behind.RETRY", 0.01)
    old, new = (
        WriteBehind(access, "t", all_rows=lambda: {"old": b""}),
        WriteBehind(access, "t", all_rows=lambda: {"new": b""}),
    )
    device.is_broken = True
    errors = value_of(metrics.CACHE_WRITE_ERRORS)
    old.rewrite()
    await until(lambda: value_of(metrics.CACHE_WRITE_ERRORS) > errors)
    old.finish()
    device.is_broken = False
    new.rewrite()
    await new.settled()
    await until(lambda: not old.is_writing)
    assert await rows(access) == {"new": b""}


# -- bounds --------------------------------------------------------------------------------------------------------


async def test_pending_rows_are_bounded_and_deletions_exceed_the_bound(
    access: DiskAccess, device: Device
) -> None:
    table = WriteBehind(access, "t")
    table.put("on disk", b"", is_urgent=True)
    await table.settled()
    device.goes_on.clear()
    half = bytes(MAX_UNWRITTEN // 2 - ROW_OVERHEAD)
    assert table.put("a", half)
    assert table.put("b", half)
    assert not table.put("c", b"")
    assert table.put("a", half[:-1] + b"x"), "it takes the place of the previous"
    assert not table.put("a", half + b"x")
    table.delete("on disk")
    assert table.waiting.keys() == {"a", "b", "on disk"}
    device.goes_on.set()
    await table.settled()
    assert (await rows(access)).keys() == {"a", "b"}
    assert table.put("c", half)


async def test_a_table_beyond_the_bound_is_written_completely(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.tables.pending_rows.MAX_UNWRITTEN", 2 * ROW_OVERHEAD)
    reported: list[str] = []
    listen(reported.append)
    known: dict[str, bytes] = {"gone": b""}
    table = WriteBehind(access, "t", all_rows=lambda: known)
    table.put("gone", b"")
    await table.settled()
    known = {"a": b"1", "b": b"2", "c": b"3"}
    for name, value in known.items():
        table.put(name, value)
    assert reported == ["changes that wait for the disk"]
    await table.settled()
    assert await rows(access) == known


async def test_deleting_a_row_that_was_never_written_needs_no_disk_write(
    access: DiskAccess, device: Device
) -> None:
    """On a hanging disk, 50,000 created and deleted events were once 50,000 deletions in memory."""
    table = WriteBehind(access, "t")
    device.goes_on.clear()
    table.put("first", b"", is_urgent=True)
    await until(lambda: table.is_writing)
    for number in range(1000):
        table.put(str(number), b"")
        table.delete(str(number))
    table.delete("first")
    assert table.waiting == {"first": None}
    device.goes_on.set()
    await table.settled()
    assert await rows(access) == {}


# -- after a restart -----------------------------------------------------------------------------------------------


async def test_rows_are_loaded_after_a_restart_in_order_without_damaged_ones(
    access: DiskAccess, device: Device
) -> None:
    await access.write({"t": TableChanges({"b": b"2", "a": b"1", "x": b"3" * 50, "d": b"4"})})
    await access.guard(device.close)
    path = device.folder / "cache.db"
    path.write_bytes(path.read_bytes().replace(b"3" * 50, b"5" * 50))
    table = WriteBehind(access, "t")
    table.put("d", b"newer")
    found = await opened(table, unwanted=["x", "d"])
    assert list(found.items()) == [("a", b"1"), ("b", b"2"), ("d", b"4"), ("x", None)]
    await table.settled()
    assert await rows(access) == {"a": b"1", "b": b"2", "d": b"newer"}


# -- deletions that a full disk cannot take ------------------------------------------------------------------------


@pytest.mark.parametrize("is_superseded", [False, True])
async def test_a_row_deleted_on_a_full_disk_stays_deleted_after_a_restart(
    access: DiskAccess, device: Device, is_superseded: bool
) -> None:
    killed, unmarked = marked(access), WriteBehind(access, "t")
    await opened(killed)
    for table in (killed, unmarked):
        table.put("a", b"old", is_urgent=True)
        await table.settled()
    device.is_broken = True
    for table in (killed, unmarked):
        table.delete("a", ABOUT)
        assert table.is_leaving(ABOUT)
    async with asyncio.timeout(5):
        while killed.is_leaving(ABOUT):
            await killed.written.wait()
    if is_superseded:
        killed.put("a", b"newer")
    assert unmarked.is_leaving(ABOUT)
    assert not unmarked.is_leaving("something else")
    unmarked.assume_deleted(ABOUT)
    assert not unmarked.is_leaving(ABOUT)
    device.is_broken = False
    again = marked(access)
    assert await opened(again) == {}
    again.put("a", b"newest", is_urgent=True)
    await again.settled()
    assert await opened(marked(access)) == {"a": b"newest"}, "the mark was of the old row alone"


async def test_a_deletion_marker_is_removed_once_the_deletion_is_on_disk(
    access: DiskAccess, device: Device
) -> None:
    table = marked(access)
    table.delete("unread", ABOUT)
    assert not table.is_leaving(ABOUT)
    table.delete("unread", ABOUT, may_be_unread=True)
    assert table.is_leaving(ABOUT)
    await table.settled()
    assert not table.is_leaving(ABOUT)


async def test_deletion_markers_beyond_the_bound_are_reported(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_MARKS > 1
    monkeypatch.setattr("addons.offline.tables.disk_rows.MAX_MARKS", 1)
    reported: list[str] = []
    listen(reported.append)
    table = marked(access)
    await opened(table)
    for name in "ab":
        table.put(name, b"")
    await table.settled()
    device.is_broken = True
    for name in "ab":
        table.delete(name)
    await until(lambda: "marks of the journal" in reported)


async def test_closing_writes_the_durable_table_first_and_reports_failures(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lingering, failing, durable = WriteBehind(access, "t"), WriteBehind(access, "fails"), marked(access)
    for table in (lingering, failing, durable):
        table.put("a", b"1")
    write = device.write

    def fail(batch: Batch, *, is_durable: bool) -> None:
        device.is_broken = "fails" in batch
        write(batch, is_durable=is_durable)

    monkeypatch.setattr(device, "write", fail)
    access.close()
    assert [list(batch) for batch in device.batches] == [["durable"], ["t"]]
    assert "lost at shutdown, not written to disk" in caplog.text


async def test_nothing_is_written_after_the_close(access: DiskAccess, device: Device) -> None:
    """Such a write would wait for ever for the disk's thread, which has ended."""
    before = asyncio.all_tasks()
    changed, finished = WriteBehind(access, "t"), WriteBehind(access, "finished")
    device.goes_on.clear()
    finished.put("a", b"1", is_urgent=True)
    await until(lambda: finished.is_writing)
    finished.put("b", b"1")
    finished.finish()
    device.goes_on.set()
    access.close()
    changed.put("a", b"1", is_urgent=True)
    await ended(before)
    assert not changed.is_writing
    assert written(device)[-1] == {"a": b"1", "b": b"1"}


async def test_rows_of_a_slow_disk_are_delivered_once_read(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    await access.write({"t": TableChanges({"a": b"1"})})
    monkeypatch.setattr("addons.offline.tables.disk_access.DISK_TIMEOUT", 0.01)
    device.goes_on.clear()
    blocked = asyncio.create_task(access.guard(lambda: device.value("t", "a")))
    await asyncio.sleep(0)
    assert await access.ask(lambda: 1) is None
    table = WriteBehind(access, "t")
    await table.open(lambda _: ())
    assert not table.is_read
    device.goes_on.set()
    assert await blocked == b"1"
    await until(lambda: table.is_read)
