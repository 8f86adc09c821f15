"""Garbage collection skips objects from before the start, and the hub returns freed memory."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from weakref import finalize

import pytest

from addons.memory import COLLECT_INTERVAL, FULL_INTERVAL, Memory, collect_regularly
from tests.addons.support.observed import ended


@pytest.fixture
def collections() -> Iterator[Counter[int]]:
    """Count collections by generation."""
    counted: Counter[int] = Counter()

    def count(phase: str, info: dict[str, int]) -> None:
        counted[info["generation"]] += phase == "start"

    thresholds = gc.get_threshold()
    gc.callbacks.append(count)
    yield counted
    gc.callbacks.remove(count)
    gc.set_threshold(*thresholds)
    gc.enable()
    gc.unfreeze()


def test_permanent_objects_are_not_collected_again(collections: Counter[int]) -> None:
    there: list[object] = [[]]
    gc.disable()
    Memory().load(None)
    assert not any(each is there for each in gc.get_objects())
    assert gc.isenabled()


def test_python_starts_no_full_collection_by_itself(collections: Counter[int]) -> None:
    """A collection of 100,000 objects blocks the loop for 0.1 s, and could run during any request."""
    Memory().load(None)
    living: list[list[int]] = [[] for _ in range(300_000)]
    assert collections[0] > 10
    assert collections[1] > 10
    assert not collections[2]
    del living


@pytest.mark.looptime
async def test_objects_of_the_first_requests_are_not_collected_again(collections: Counter[int]) -> None:
    Memory().load(None)
    before = asyncio.all_tasks()
    first: list[list[int]] = [[] for _ in range(3_000)]
    collecting = asyncio.create_task(collect_regularly())
    await asyncio.sleep(FULL_INTERVAL + COLLECT_INTERVAL)
    later: list[list[int]] = [[] for _ in range(3_000)]
    await asyncio.sleep(FULL_INTERVAL + COLLECT_INTERVAL)
    collecting.cancel()
    assert collections[2] == 2
    tracked = {id(each) for each in gc.get_objects()}
    assert id(first[0]) not in tracked
    assert id(later[0]) in tracked
    await ended(before)


@pytest.mark.looptime
async def test_full_collections_are_rare(collections: Counter[int]) -> None:
    Memory().load(None)
    before = asyncio.all_tasks()
    collecting = asyncio.create_task(collect_regularly())
    for _ in range(30):
        living: list[list[int]] = [[] for _ in range(3_000)]
        await asyncio.sleep(COLLECT_INTERVAL)
        del living
    collecting.cancel()
    assert 1 <= collections[2] <= 3
    assert collections[1] > 20
    await ended(before)


async def test_closed_connections_are_collected_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed connection is a reference cycle. Python's own thresholds would let ten times as many accumulate."""

    class Connection:
        """An object that refers to itself, as a connection does through its handlers."""

        def __init__(self) -> None:
            self.own = self

    async def frozen_once() -> None:
        """Return after the first full collection, which freezes the live objects."""
        before = gc.get_freeze_count()
        async with asyncio.timeout(30):
            while gc.get_freeze_count() == before:
                living: list[list[int]] = [[] for _ in range(30_000)]
                await asyncio.sleep(0.01)
                del living

    monkeypatch.setattr("addons.memory.COLLECT_INTERVAL", 0.01)
    monkeypatch.setattr("addons.memory.FULL_INTERVAL", 0.01)
    monkeypatch.setattr(
        "addons.memory.FULL_COLLECTION_SHARE", 1000.0
    )  # this process also has the objects of all other tests
    gc.collect()
    collecting = asyncio.create_task(collect_regularly())
    try:
        await frozen_once()
        connections: list[Connection] = []
        for _ in range(10_000):
            connections.append(Connection())
        gone = asyncio.Event()
        finalize(connections[-1], gone.set)
        # These objects have survived some collections.
        await asyncio.sleep(0.05)
        connections.clear()
        for _ in range(3_000):
            connections.append(Connection())
        async with asyncio.timeout(30):
            await gone.wait()
    finally:
        collecting.cancel()


IS_GLIBC = hasattr(ctypes.CDLL(None), "mallopt")

MAPPINGS = """
import ctypes, sys

if sys.argv[1] == "set":
    from addons.memory import Memory

    Memory().load(None)
del (first := [b"x" * 4_000_000])[:]
lists = [b"x" * 200_000 for _ in range(200)]
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize(("how", "are_mappings"), [("set", True), ("unset", False)])
def test_large_allocations_are_separate_mappings(how: str, are_mappings: bool) -> None:
    """A separate mapping is returned to the system when freed, even if a larger one was freed before."""
    if not IS_GLIBC:
        pytest.skip("this C library is not glibc")
    done = subprocess.run([sys.executable, "-c", MAPPINGS, how], check=True, capture_output=True, text=True)
    output = re.search(r"max mmap regions = +(\d+)", done.stderr)
    assert output is not None
    assert (int(output[1]) >= 200) is are_mappings


THREADS = """
import ctypes, sys
from threading import Barrier, Thread
from addons.memory import Memory

def work():
    held = bytes(60_000)
    all_have_theirs.wait()

if sys.argv[1] == "set":
    Memory().load(None)
all_have_theirs = Barrier(4)
threads = [Thread(target=work) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
ctypes.CDLL(None).malloc_stats()
"""


@pytest.mark.parametrize(
    ("how", "asked", "has_one"),
    [("set", {}, True), ("unset", {}, False), ("set", {"MALLOC_ARENA_MAX": "4"}, False)],
)
def test_all_threads_share_a_malloc_arena_unless_configured_otherwise(
    how: str, asked: dict[str, str], has_one: bool
) -> None:
    if not IS_GLIBC:
        pytest.skip("this C library is not glibc")
    inherited = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    run = partial(subprocess.run, check=True, capture_output=True, text=True)
    output = run([sys.executable, "-c", THREADS, how], env={**inherited, **asked}).stderr
    assert (output.count("Arena ") == 1) is has_one
