"""No garbage collection looks at objects from before the start, and the hub gives free memory back."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from addons.memory import TRIM_INTERVAL, Memory
from tests.addons.support.observed import ended


def test_what_lives_for_good_is_not_gone_through_again() -> None:
    there: list[object] = [[]]
    gc.disable()
    Memory().load(None)
    try:
        assert not any(each is there for each in gc.get_objects())
        assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


def resident() -> int:
    """Kilobytes."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_what_a_burst_took_goes_back() -> None:
    trim = Memory()._trim
    if trim is None:
        pytest.skip("this C library returns memory by itself")
    burst = [bytes(100_000) for _ in range(1000)]
    # What is kept between keeps the C library from returning the rest.
    kept = burst[::50]
    del burst
    before = resident()
    trim(0)
    assert resident() < before - 60_000
    assert len(kept) == 20


HOLES = """
import sys
from pathlib import Path
from addons.memory import Memory

def resident():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

if sys.argv[1] == "set":
    Memory().load(None)
del (first := [bytes(b"x" * 4_000_000)])[:]
lists, kept = [], []
for number in range(200):
    lists.append(b"x" * 200_000)
    kept.append(b"y" * 2_000)
before = resident()
lists.clear()
print(before - resident())
"""


@pytest.mark.parametrize(("how", "goes_back"), [("set", True), ("unset", False)])
def test_large_allocations_leave_no_holes(how: str, goes_back: bool) -> None:
    if Memory()._trim is None:
        pytest.skip("this C library is not glibc")
    done = subprocess.run([sys.executable, "-c", HOLES, how], check=True, capture_output=True, text=True)
    assert (int(done.stdout) > 30_000) is goes_back


@pytest.mark.looptime
async def test_it_is_done_again_and_again() -> None:
    before, trimmed, done = asyncio.all_tasks(), list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def trim(pad: int) -> None:
        trimmed.append(pad)
        if len(trimmed) == 3:
            loop.call_soon_threadsafe(done.set)

    heap, began = Memory(trim), loop.time()
    heap.running()
    await done.wait()
    assert loop.time() - began == pytest.approx(3 * TRIM_INTERVAL, abs=1)
    heap.done()
    await ended(before)
