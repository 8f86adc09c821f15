"""The loop's way to the disk: who waits goes on after a moment, and the end writes first what nobody else has."""

from __future__ import annotations

import asyncio

import pytest

from addons.offline.disk_access import DiskAccess
from addons.offline.write_behind import WriteBehind
from kube.disk.database import Batch, TableChanges
from tests.addons.support.devices import Device, marked
from tests.addons.support.observed import until


async def test_the_end_writes_what_waits_and_first_what_nobody_else_has(
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
    assert "not written at the end" in caplog.text


async def test_a_slow_disk_delivers_its_rows_later(
    access: DiskAccess, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    await access.write({"t": TableChanges({"a": b"1"})})
    monkeypatch.setattr("addons.offline.disk_access.PATIENCE", 0.01)
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
