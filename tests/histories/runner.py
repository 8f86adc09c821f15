"""Plays histories on a virtual clock, and shrinks those that end with a finding. `python -m tests.histories.runner
SECONDS [SEED]` plays random histories; it exits with 1 after a finding."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import looptime

from addons.views.reviews import Reviews
from kube.concurrency.backoff import Backoff
from tests.histories.steps import History, made_up, rules, take
from tests.histories.world import Finding, World, status_of


@contextmanager
def monotonic(clock: Callable[[], float]) -> Iterator[None]:
    """Replace the monotonic clock by `clock`, also in default arguments bound at import."""
    real, bound = time.monotonic, (Backoff.__init__, Reviews.__init__)
    defaults = [each.__defaults__ or () for each in bound]
    for each, were in zip(bound, defaults, strict=True):
        each.__defaults__ = tuple(clock if value is real else value for value in were)
    try:
        with patch.object(time, "monotonic", clock):
            yield
    finally:
        for each, were in zip(bound, defaults, strict=True):
            each.__defaults__ = were


LENGTH = 60
"""The maximum number of steps of a history."""
KINDS = (
    "ghost",
    "hole",
    "another",
    "lost",
    "410 for ever",
    "refused",
    "old consistent",
    "kubelet",
    "impatient",
)
"""The kinds of findings, worst first: shrinking retains the kind."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a database on a disk would cost most of the time


def play(history: History, seed: int = 0) -> str:
    """Play a history; return the finding, "" without one."""
    random.seed(seed)
    where = SHARED_MEMORY if SHARED_MEMORY.exists() else None
    with (
        tempfile.TemporaryDirectory(dir=where) as folder,
        asyncio.Runner(loop_factory=_new_loop) as runner,
        monotonic(runner.get_loop().time),
    ):
        return runner.run(_play(history, Path(folder)))


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop with a virtual clock, whose own time-out for its threads could expire before they end."""
    loop = looptime.new_event_loop()
    loop.shutdown_default_executor = _shut_down_already  # type: ignore[method-assign]  # of this loop alone
    return loop


async def _shut_down_already(timeout: float | None = None) -> None:
    """Do nothing: `_play` has already waited for the threads, in real time."""


async def _play(history: History, folder: Path) -> str:
    with ThreadPoolExecutor() as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        return await _played(history, folder)


async def _played(history: History, folder: Path) -> str:
    world = World(folder)
    for name in ("n1", "n2", "n3"):
        world.cloud.put("nodes", name, status=status_of("0"))
    rules(world, "none")
    world.cloud.back_up()
    await world.node.start()
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


def shrunk(history: History, seed: int, kind: str) -> History:
    """Return a shortest history that ends with the same kind of finding, by leaving out steps."""
    size = len(history) // 2
    while size:
        start = 0
        while start < len(history):
            shorter = history[:start] + history[start + size :]
            if kind_of(play(shorter, seed)) == kind:
                history = shorter
            else:
                start += size
        size //= 2
    return history


def kind_of(wrong: str) -> str:
    """Return the first finding, without names and versions."""
    return next((kind for kind in KINDS if kind in wrong), wrong)


def written(history: History) -> str:
    """Return a history as text for a pinned test."""
    return textwrap.fill("; ".join(" ".join(step) for step in history), 96)


def parsed(text: str) -> History:
    """Parse the text of a history."""
    return [tuple(step.split()) for step in text.split(";") if step.strip()]


def main(seconds: float, seed: int) -> int:
    """Play histories for some seconds; return the number of findings."""
    logging.disable(logging.CRITICAL)
    end, histories, steps, findings = time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < end:
        history = made_up(random.Random(seed), LENGTH)
        wrong = play(history, seed)
        histories, steps = histories + 1, steps + len(history)
        if wrong:
            findings += 1
            print(f"seed {seed}: {wrong}", flush=True)
            shorter = shrunk(history, seed, kind_of(wrong))
            print(f"{play(shorter, seed)}\n{written(shorter)}", flush=True)
        seed += 1
    print(f"{histories} histories, {steps} steps, {findings} findings; the next seed is {seed}")
    return findings


if __name__ == "__main__":
    budget = float(sys.argv[1])
    sys.exit(1 if main(budget, int(sys.argv[2]) if len(sys.argv) > 2 else 0) else 0)
