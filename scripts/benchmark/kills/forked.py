"""Hubs that a process forks once it has imported them: a start costs a third, and a kill leaves behind the same.

`python -m scripts.benchmark.kills.forked` is that process: it reads the log and the flags of a hub in each line, and
answers with its pid.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.cloud.processes import GRACE, Process, ProcessFailedError
from tests.hub.support.process import ROOT, Hub


class Nursery:
    """The process that forks hubs. A context manager; threads may share it."""

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "scripts.benchmark.kills.forked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def fork(self, log: Path, flags: Sequence[str]) -> int:
        """The pid of a new hub."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        with self._lock:
            asks.write(json.dumps([str(log), *flags]).encode() + b"\n")
            asks.flush()
            return int(answers.readline())


class ForkedProcess(Process):
    """A hub that the nursery forked."""

    def __init__(self, nursery: Nursery, folder: Path, flags: Sequence[str]) -> None:
        self.name, self.log, self.lines = "hub", folder / "hub.log", []
        self._pid = nursery.fork(self.log, flags)
        self._handle = os.pidfd_open(self._pid)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def running(self) -> bool:
        return not self._ends_within(0)

    def failure(self, what: str) -> ProcessFailedError:
        return ProcessFailedError(f"{self.name} {what}; {self.log}")

    def stop(self, grace: float = GRACE) -> int:
        signal.pidfd_send_signal(self._handle, signal.SIGTERM)
        if not self._ends_within(grace):
            return self.kill()
        os.close(self._handle)
        return 0

    def kill(self) -> int:
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self._ends_within(GRACE)
        os.close(self._handle)
        return -signal.SIGKILL

    def _ends_within(self, seconds: float) -> bool:
        return bool(select.select([self._handle], [], [], seconds)[0])


class ForkedHub(Hub):
    """A hub whose process the nursery forks."""

    nursery: Nursery

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._process = ForkedProcess(self.nursery, self.folder, self._flags)


def main() -> None:
    """Fork until nobody asks any more."""
    from addons import command  # noqa: PLC0415 - the bench itself needs nothing of a hub
    from addons.startup.lean_imports import leave_out_unused  # noqa: PLC0415 - as said above

    leave_out_unused()
    from addons import hub  # noqa: F401, PLC0415 - behind leave_out_unused
    from addons.proxy import master  # noqa: F401, PLC0415 - as said above

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a hub
    for line in sys.stdin:
        log, *flags = json.loads(line)
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attach(Path(log))
            command.main(flags)
            os._exit(0)
        print(pid, flush=True)


def _attach(log: Path) -> None:
    """Have this process write to its log, and read nothing."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(source, number)


if __name__ == "__main__":
    main()
