"""A program under test in its own process, and its output line by line, to wait for and to show on failure."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

# Seconds between SIGTERM and SIGKILL: the hub's limit; kube-apiserver and etcd need less.
GRACE = 5.0
# Lines of output in an error message: a Go program's last lines and the flags it complains about.
TAIL = 30


class ProcessFailedError(Exception):
    """The program ended, or did not print the awaited line; the message has its last lines."""


def _environment() -> dict[str, str]:
    """Return this process's environment; in a pipe a program buffers its output as it does for an operator."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


class Process:
    """A process of a program. Standard output and error go to `<folder>/<name>.log` and to `lines`."""

    def __init__(
        self, name: str, command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._child = subprocess.Popen(
            [str(argument) for argument in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**_environment(), **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def wait_for_line(self, pattern: str, timeout: float, after: int = 0) -> str:
        """Return the first line, from number `after` on, that matches the pattern; it may have been printed already.

        Raises ProcessFailedError if the program ends, or `timeout` seconds pass, without such a line.
        """
        wanted = re.compile(pattern)
        deadline = time.monotonic() + timeout
        position = after
        with self._changed:
            while True:
                for line in self.lines[position:]:
                    if wanted.search(line):
                        return line
                position = max(position, len(self.lines))
                if self._ended:
                    raise self.failure(f"ended without a line that matches {pattern!r}")
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise self.failure(f"said nothing that matches {pattern!r} in {timeout:g} s")
                self._changed.wait(remaining)

    def wait_until(self, condition: Callable[[], object], what: str, timeout: float) -> None:
        """Poll until a condition holds; ProcessFailedError if the program ends, or `timeout` seconds pass."""
        deadline = time.monotonic() + timeout
        while not condition():
            if not self.running or time.monotonic() > deadline:
                raise self.failure(f"did not {what}")
            time.sleep(0.02)

    def failure(self, what: str) -> ProcessFailedError:
        """Return an error with the fault, the exit status if any, and the last lines."""
        code = self._child.poll()
        status = "" if code is None else f" (exit status {code})"
        return ProcessFailedError(
            "\n".join([f"{self.name} {what}{status}; {self.log}:", *self.lines[-TAIL:]])
        )

    def stop(self, grace: float = GRACE) -> int:
        """Send SIGTERM, and SIGKILL after `grace` seconds; return the exit status, or minus the signal."""
        self._child.terminate()
        try:
            self._child.wait(grace)
        except subprocess.TimeoutExpired:
            self._child.kill()
        return self._reap()

    def kill(self) -> int:
        """Send SIGKILL at once, like a crash or a power cut."""
        self._child.kill()
        return self._reap()

    def _reap(self) -> int:
        code = self._child.wait()
        # The reader ends with the pipe. If a grandchild inherited the pipe, its output is not needed.
        self._reader.join(GRACE)
        return code

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as output, self.log.open("ab") as log:
            for raw in output:
                log.write(raw)
                log.flush()
                with self._changed:
                    self.lines.append(raw.decode(errors="replace").rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Component:
    """A process of a test, as a context manager that ends it."""

    process: Process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process."""
        self.process.stop()


def sum_of_samples(page: str, name: str, **labels: str) -> float:
    """Sum a metric's samples with these labels on a page of metrics; 0 when there is none."""
    samples = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(value) for carried, value in samples if all(each in carried for each in wanted))
