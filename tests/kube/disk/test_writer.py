"""The disk's thread: results are returned in order, and no caller waits for a hanging disk."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator

import pytest

from kube.disk.database import DiskError
from kube.disk.writer import MAX_WAITING, DiskBusy, DiskWriter


@pytest.fixture
def writer() -> Iterator[DiskWriter]:
    made = DiskWriter()
    yield made
    made.close(lambda: None)


async def test_results_and_errors_are_returned_to_the_caller(writer: DiskWriter) -> None:
    def fail() -> None:
        raise DiskError("full")

    assert await writer.do(lambda: 1) == 1
    with pytest.raises(DiskError, match="full"):
        await writer.do(fail)
    assert await writer.do(lambda: 2) == 2


async def test_operations_run_in_order(writer: DiskWriter) -> None:
    done: list[int] = []
    await asyncio.gather(*(writer.do(functools.partial(done.append, each)) for each in range(50)))
    assert done == list(range(50))


async def test_a_stalled_disk_refuses_more_operations_at_once() -> None:
    writer, released = DiskWriter(), threading.Event()
    waiting = [asyncio.create_task(writer.do(released.wait)) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    while writer.waiting < MAX_WAITING:
        waiting.append(asyncio.create_task(writer.do(released.wait)))
        await asyncio.sleep(0)
    with pytest.raises(DiskBusy):
        await writer.do(lambda: None)
    released.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    writer.close(lambda: None)


async def test_pending_operations_run_at_the_close() -> None:
    writer, done = DiskWriter(), threading.Event()
    writer.close(done.set)
    assert done.is_set()
