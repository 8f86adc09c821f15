"""Runs commands of this machine, and reports in one line what the machine lacks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PACKAGES = {"debootstrap": "debootstrap", "ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}
"""By required program: the Debian package that has it."""
INTERVAL = 0.1
"""Seconds between polls of a state that sends no notification."""


class LackError(Exception):
    """The machine lacks something; the message names it in one line."""


class FailedError(Exception):
    """A step failed; the message names it, and has the end of its output."""


def say(text: str) -> None:
    """Print the progress."""
    print(f"node: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path, stdin: str = "", timeout: float = 600.0) -> str:
    """Run a command, and return its output. Raises FailedError with its last lines."""
    arguments = [str(argument) for argument in command]
    try:
        done = subprocess.run(
            arguments, input=stdin, capture_output=True, text=True, check=False, timeout=timeout, cwd="/"
        )
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"{' '.join(arguments)}: no end in {timeout:g} s") from error
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-30:]
        raise FailedError("\n".join([f"{' '.join(arguments)} failed ({done.returncode}):", *last]))
    return done.stdout


def until(what: str, holds: Callable[[], object], timeout: float, interval: float = INTERVAL) -> None:
    """Poll until the condition holds. Raises FailedError at the timeout."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise FailedError(f"not within {timeout:g} s: {what}")
        time.sleep(interval)


def require_machine(programs: Sequence[str] = tuple(PACKAGES)) -> None:
    """Install missing packages with apt if possible; raise LackError for those still missing."""
    if os.geteuid() != 0:
        raise LackError("root is needed, for namespaces and mounts")
    missing = _missing(programs)
    if missing and shutil.which("apt-get"):
        packages = sorted({PACKAGES[name] for name in missing})
        say(f"installing {', '.join(packages)}")
        wait = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Check-Valid-Until=false")
        for step in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", *packages)):
            try:
                run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *wait, *step)
            except FailedError as error:
                raise LackError(
                    f"apt-get cannot install {', '.join(packages)}: {error.args[0].splitlines()[-1]}"
                ) from error
        missing = _missing(programs)
    if missing:
        needed = ", ".join(sorted({PACKAGES[name] for name in missing}))
        raise LackError(f"{', '.join(missing)} not found; Debian's packages are {needed}")
    _require_namespaces()


def _missing(programs: Sequence[str]) -> list[str]:
    return [name for name in programs if shutil.which(name) is None]


def _require_namespaces() -> None:
    try:
        run(
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--net",
            "--uts",
            "--ipc",
            "--cgroup",
            "mount",
            "-t",
            "proc",
            "proc",
            "/proc",
        )
    except FailedError as error:
        raise LackError(f"no namespaces of its own: {error.args[0].splitlines()[-1]}") from error
