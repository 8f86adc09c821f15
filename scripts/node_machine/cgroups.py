"""The control groups of machines: one in each hierarchy of this machine. Ending a group kills its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.node_machine.commands import FailedError

PARENT = "edgehub-node"
WEIGHTS = {"cpu.shares": 8192, "cpu.weight": 800}
"""By version: the CPU weight, eight times the default."""
END_TIMEOUT = 30.0
"""Seconds to wait until killed processes have ended."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy, its kind (`cgroup` or `cgroup2`), and its mount options."""

    mount_point: Path
    kind: str
    options: str

    @property
    def controllers(self) -> str:
        """The mount options that name a hierarchy of the first version, as in `cpu` or `name=systemd`."""
        general = {"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "xattr", "clone_children"}
        return ",".join(option for option in self.options.split(",") if option not in general)


def hierarchies(mounts: str) -> list[Hierarchy]:
    """Return the hierarchies in a /proc/mounts; if it has both versions, those of version 1."""
    found = [
        Hierarchy(Path(mount_point), kind, options)
        for _, mount_point, kind, options, *_ in map(str.split, mounts.splitlines())
        if kind in ("cgroup", "cgroup2")
    ]
    return [each for each in found if each.kind == "cgroup"] or found


def here() -> list[Hierarchy]:
    """Return the cgroup hierarchies of this machine."""
    return hierarchies(Path("/proc/mounts").read_text())


def groups(instance: str, machine: str = "") -> list[Path]:
    """Return the groups of an instance, or of one of its machines, whether they exist or not."""
    return [each.mount_point / PARENT / instance / machine for each in here()]


def make(instance: str, machine: str) -> list[Path]:
    """Create the groups of a machine."""
    made = groups(instance, machine)
    for each in here():
        folder = each.mount_point
        for name in (PARENT, instance, machine):
            above, folder = folder, folder / name
            folder.mkdir(exist_ok=True)
            # Without processors and memory of its own, a group takes no process.
            for own in ("cpuset.cpus", "cpuset.mems") if "cpuset" in each.controllers else ():
                (folder / own).write_text((above / own).read_text())
            if name == PARENT:
                _give_weight(folder)
            if each.kind == "cgroup2":
                controllers = (above / "cgroup.controllers").read_text().split()
                with contextlib.suppress(OSError):
                    (above / "cgroup.subtree_control").write_text(
                        " ".join(f"+{name}" for name in controllers)
                    )
    return made


def _give_weight(parent: Path) -> None:
    """Raise the CPU weight of all machines together: the default is that of one process."""
    for name, weight in WEIGHTS.items():
        if (parent / name).exists():
            (parent / name).write_text(f"{weight}")


def end(instance: str, machine: str = "") -> None:
    """Kill all processes in the groups of an instance or a machine, and remove the groups."""
    deadline = time.monotonic() + END_TIMEOUT
    tops = groups(instance, machine)
    while any(top.exists() for top in tops):
        for top in tops:
            for pid in _processes(top):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _remove(top)
        if time.monotonic() > deadline:
            raise FailedError(f"cannot be removed: {', '.join(str(top) for top in tops if top.exists())}")
        time.sleep(0.05)
    for each in here():
        # The last machine removes its instance's folder, the last instance the parent.
        for folder in (each.mount_point / PARENT / instance, each.mount_point / PARENT):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _processes(top: Path) -> Iterator[int]:
    for folder, _, _ in top.walk():
        # A group can go while it is looked at.
        with contextlib.suppress(OSError):
            yield from map(int, (folder / "cgroup.procs").read_text().split())


def _remove(top: Path) -> None:
    for folder, _, _ in top.walk(top_down=False):
        with contextlib.suppress(OSError):
            folder.rmdir()
