"""Boots and ends a machine of an instance, and runs commands on it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.node_machine import cgroups
from scripts.node_machine.boot import PATH, Plan
from scripts.node_machine.commands import FailedError, run, until
from scripts.node_machine.instances import ROOT, Instance

NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")
PERSISTENT = ("/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/edgehub")
"""Folders outside the overlay: containerd makes overlays in its own, and databases lock and map files."""
BOOT_TIMEOUT = 60.0
BEGIN = f"""\
for each in $1; do echo $$ >"$each/cgroup.procs"; done
pid=$2
shift 2
exec 3<&0
unshare {" ".join(NAMESPACES)} --fork -- "$@" <&3 3<&- &
echo $! >"$pid"
"""
"""A shell script that starts the machine as its only child, in the machine's control groups."""
RUNNING = ("running", "degraded")
"""The states in which systemd is up."""
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def faked(moved: int) -> tuple[str, ...]:
    """Return the environment in which programs that use the C library see a time `moved` seconds ahead."""
    # The fix has each wait of a thread, for a time by the other clock, keep a processor busy.
    clocks = ("DONT_FAKE_MONOTONIC=1", "FAKETIME_FORCE_MONOTONIC_FIX=0")
    return f"LD_PRELOAD={FAKETIME}", f"FAKETIME=+{moved}s", *clocks


@dataclass(frozen=True, slots=True)
class Machine:
    """The cloud or a node of an instance; its name there is also its host name."""

    instance: Instance
    name: str

    @property
    def folder(self) -> Path:
        return self.instance.disk(self.name)

    @property
    def pid(self) -> int:
        """Return the machine's PID 1 as this machine numbers it. FailedError if it does not run."""
        pid = self.instance.pid(self.name)
        if pid is None:
            raise FailedError(f"{self.name} of {self.instance.name} does not run; scripts/node up starts it")
        return pid

    @property
    def runs(self) -> bool:
        return self.instance.pid(self.name) is not None

    def start(self, layers: Sequence[Path], binds: Mapping[Path, Sequence[str]]) -> IO[bytes]:
        """Make the namespaces; the machine boots when the caller closes the returned pipe."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._give_identity()
        plan = self.folder / "plan.json"
        pairs = [(str(source), target) for source, targets in binds.items() for target in targets]
        trees = [(each.kind, each.controllers) for each in cgroups.here()]
        Plan(
            str(self.folder), self.name, [str(each) for each in layers], pairs, list(PERSISTENT), trees
        ).write(plan)
        groups = " ".join(map(str, cgroups.make(self.instance.name, self.name)))
        boot = [sys.executable, "-m", "scripts.node_machine.boot", str(plan)]
        with (self.folder / "console.log").open("ab") as console:
            shell = subprocess.Popen(
                ["sh", "-c", BEGIN, "sh", groups, str(self.folder / "unshare.pid"), *boot],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=console,
                cwd=ROOT,
                # It survives the terminal from which it was started.
                start_new_session=True,
            )
        assert shell.stdin is not None
        shell.wait()
        unshare = int((self.folder / "unshare.pid").read_text())
        until(f"{self.name} has namespaces", lambda: self._child(unshare), BOOT_TIMEOUT)
        self.instance.remember(self.name, self._child(unshare))
        return shell.stdin

    def _child(self, unshare: int) -> int:
        """Return the machine's PID 1, or 0 until unshare has made it."""
        try:
            children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        except FileNotFoundError as error:
            said = (self.folder / "console.log").read_text()[-2000:]
            raise FailedError(f"{self.name} does not boot:\n{said}") from error
        return int(children[0]) if children else 0

    def _give_identity(self) -> None:
        own = self.folder / "upper" / "etc" / "machine-id"
        if not own.exists():
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_text(f"{uuid.uuid4().hex}\n")
        (own.parent / "hostname").write_text(f"{self.name}\n")

    def wait_until_up(self) -> None:
        """Wait until systemd has started all units of the boot."""
        until(f"systemd runs on {self.name}", self._is_up, BOOT_TIMEOUT)

    def _is_up(self) -> bool:
        return self.try_run("systemctl", "is-system-running").stdout.strip() in RUNNING

    def end(self) -> None:
        """End the machine as a power cut does, and remove its control groups; its disk stays."""
        pid = self.instance.pid(self.name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        cgroups.end(self.instance.name, self.name)
        until(f"{self.name} has ended", lambda: not self.runs, BOOT_TIMEOUT)

    @property
    def moved(self) -> int:
        """Return the seconds by which its clock is ahead."""
        offset = self.folder / "later"
        return int(offset.read_text()) if offset.exists() else 0

    def enter(self, *command: str) -> list[str]:
        """Return the command line that runs a command on the machine, with root's environment and the machine's
        clock."""
        namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
        environment = (f"PATH={PATH}", "HOME=/root", f"TERM={os.environ.get('TERM', 'dumb')}", "LANG=C.UTF-8")
        clock = faked(self.moved) if self.moved else ()
        return ["nsenter", f"--target={self.pid}", *namespaces, "env", "-i", *environment, *clock, *command]

    def run(self, *command: str, stdin: str = "") -> str:
        """Run a command on the machine; return its output. Raises FailedError."""
        return run(*self.enter(*command), stdin=stdin)

    def try_run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine, ignoring failures."""
        return subprocess.run(
            self.enter(*command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
        )

    def write(self, path: str, text: str) -> None:
        """Write a file of the running machine."""
        self.run("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, stdin=text)

    def in_network(self, *command: str) -> str:
        """Run a command of this machine in the other machine's network namespace."""
        return run("nsenter", f"--target={self.pid}", "--net", *command)
