"""A process whose output is waited on, and its end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.cloud.processes import Process, ProcessFailedError

TIMEOUT = 20.0
"""Seconds; for what takes a fraction of one."""


class Run(Protocol):
    def __call__(self, source: str, **env: str) -> Process: ...


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs a Python program; what a test leaves running is killed."""
    started: list[Process] = []

    def run(source: str, **env: str) -> Process:
        process = Process("program", [sys.executable, "-u", "-c", source], tmp_path, env=env)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()


def test_a_line_is_found_before_and_after_it_was_waited_for(run: Run) -> None:
    process = run("import signal; print('ready 1'); print('ready 2'); signal.pause()")
    assert process.wait_for_line(r"ready \d", TIMEOUT) == "ready 1"
    assert process.wait_for_line("2", TIMEOUT) == "ready 2"
    assert process.wait_for_line("1", TIMEOUT) == "ready 1"
    assert process.wait_for_line("ready", TIMEOUT, after=1) == "ready 2"
    assert process.running


def test_a_program_that_ends_too_early_is_told_with_its_last_words(run: Run) -> None:
    process = run("import sys; sys.exit('no such flag')")
    with pytest.raises(ProcessFailedError, match=r"(?s)program ended without .*'ready'.*no such flag"):
        process.wait_for_line("ready", TIMEOUT)


def test_a_program_that_says_nothing_is_told(run: Run) -> None:
    process = run("import signal; signal.pause()")
    with pytest.raises(ProcessFailedError, match=r"said nothing that matches 'ready' in 0\.01 s"):
        process.wait_for_line("ready", 0.01)


def test_stop_asks_first(run: Run) -> None:
    program = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    process = run(f"{program}; print('up'); signal.pause()")
    process.wait_for_line("up", TIMEOUT)
    assert process.stop() == 7
    assert not process.running
    assert process.stop() == 7


def test_stop_kills_what_does_not_listen(run: Run) -> None:
    process = run(
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up')\nwhile 1: signal.pause()"
    )
    process.wait_for_line("up", TIMEOUT)
    assert process.stop(grace=0.05) == -signal.SIGKILL
