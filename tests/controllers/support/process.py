"""A manager in its own process, as `scripts/manager` starts it, and its state for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self

import urllib3

from kube.json_type import Json
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.processes import Process, sum_of_samples

START_TIMEOUT = 60.0
"""Seconds to readiness; 2 on idle cores."""
PROGRAM = Path(__file__).parents[3] / "scripts" / "manager"


@cache
def program() -> str:
    """Return `scripts/manager`; the first call may install what it needs."""
    subprocess.run([PROGRAM, "--version"], check=True, capture_output=True)
    return str(PROGRAM)


@cache
def interpreter() -> str:
    """Return the Python interpreter that runs it."""
    shown = '. scripts/environment && environment manager && echo "$python"'
    done = subprocess.run(
        ["bash", "-c", shown], cwd=PROGRAM.parents[1], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class ManagerProcess:
    """A manager process; a context manager that yields once it is ready."""

    def __init__(self, folder: Path, kubeconfig: Path, *flags: str, name: str = "manager") -> None:
        self.name = name
        self._folder = folder
        self._port = free_port()
        self._command = [
            *(program(), "--kubeconfig", str(kubeconfig)),
            *("--listen", LOOPBACK, "--admin-port", str(self._port), "--webhook-port", "0", *flags),
        ]
        self._http = urllib3.PoolManager(retries=False, timeout=10.0)
        self.process = self._start()

    def __enter__(self) -> Self:
        try:
            self.wait_until(lambda: self.status("/readyz") == 200, "ready")
        except BaseException:
            self.__exit__()  # only the test ends the process
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.running:
            self.process.stop()

    def status(self, path: str) -> int:
        """Return the status of a GET on the admin port; 0 without a listener."""
        try:
            return self._http.request("GET", f"http://{LOOPBACK}:{self._port}{path}").status
        except urllib3.exceptions.HTTPError:
            return 0

    def fleet(self, node: str) -> Json:
        """Return the fleet page's entry of a node's hub; {} before it has one."""
        hubs = self._http.request("GET", f"http://{LOOPBACK}:{self._port}/fleet").json()
        return next((each for each in hubs if each["node"] == node), {})

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels; 0 if there is none."""
        page = self._http.request("GET", f"http://{LOOPBACK}:{self._port}/metrics").data.decode()
        return sum_of_samples(page, name, **labels)

    @property
    def identity(self) -> str:
        """Return the manager's name in the Lease and in writes; wait until it leads for the first time."""
        line = self.process.wait_for_line(r" leads$", START_TIMEOUT)
        return line.removesuffix(" leads").rpartition(" ")[2]

    def leads(self) -> bool:
        return self.process.running and self.metric("edgehub_manager_leader") == 1

    def wait_until_leading(self) -> None:
        self.wait_until(self.leads, "leading")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until a condition, a function without arguments, holds."""
        self.process.wait_until(condition, f"become {what}", START_TIMEOUT)

    def _start(self) -> Process:
        return Process(self.name, self._command, self._folder)
