"""Plays histories on a virtual clock, and makes those that end with a finding as short as they can be.

`python -m tests.histories.runner SECONDS [SEED]` plays histories by chance; it ends with 1 after a finding.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import looptime

from tests.histories.steps import History, made_up, rules, take
from tests.histories.world import Finding, World

LENGTH = 60
"""Steps of a history at most."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a database on a disk would cost most of the time


def play(history: History, seed: int = 0) -> str:
    """What was wrong in a history, "" where nothing was."""
    random.seed(seed)
    where = SHARED_MEMORY if SHARED_MEMORY.exists() else None
    with (
        tempfile.TemporaryDirectory(dir=where) as folder,
        asyncio.Runner(loop_factory=looptime.new_event_loop) as runner,
    ):
        return runner.run(_play(history, Path(folder)))


async def _play(history: History, folder: Path) -> str:
    world = World(folder)
    for name in ("n1", "n2", "n3"):
        world.cloud.put(
            "nodes", name, status={"conditions": [{"type": "Ready", "status": "True", "message": "0"}]}
        )
    rules(world, "none")
    world.cloud.back_up()
    await world.start()
    await asyncio.sleep(1)
    try:
        for step in history:
            await take(world, step)
        await world.settle()
    except Finding as finding:
        return str(finding)
    finally:
        await world.close()
    return ""


def shrunk(history: History, is_found: Callable[[History], bool]) -> History:
    """A shortest history that is still found, by leaving out steps."""
    size = len(history) // 2
    while size:
        start = 0
        while start < len(history):
            shorter = history[:start] + history[start + size :]
            if is_found(shorter):
                history = shorter
            else:
                start += size
        size //= 2
    return history


def written(history: History) -> str:
    """A history as a test pins it."""
    return "[\n" + "".join(f"    {step!r},\n" for step in history) + "]"


def main(seconds: float, seed: int) -> int:
    """Play histories for some seconds; the number of findings."""
    logging.disable(logging.ERROR)
    end, histories, steps, findings = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < end:
        history = made_up(random.Random(seed), random.Random(seed).randint(5, LENGTH))
        wrong = play(history, seed)
        histories, steps = histories + 1, steps + len(history)
        if wrong:
            findings += 1
            print(f"seed {seed}: {wrong}", flush=True)
            shorter = shrunk(history, lambda each, seed=seed: bool(play(each, seed)))
            print(f"{play(shorter, seed)}\n{written(shorter)}", flush=True)
        seed += 1
    print(f"{histories} histories, {steps} steps, {findings} findings; the next seed is {seed}")
    return findings


if __name__ == "__main__":
    budget = float(sys.argv[1])
    sys.exit(1 if main(budget, int(sys.argv[2]) if len(sys.argv) > 2 else 0) else 0)
