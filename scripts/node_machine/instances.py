"""An instance: a cloud and its nodes, and the folders of its state."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder of the checkout."""
CLOUD = "cloud"
NAME_VARIABLE = "EDGEHUB_NODE"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of this user's cached userland and images, beside the programs."""
    base = environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".cache"
    return root / "edgehub" / "node"


def default_name(checkout: Path) -> str:
    """Return the name of this checkout's own instance, so that checkouts do not share one."""
    slug = re.sub(r"[^a-z0-9]+", "-", checkout.name.lower()).strip("-")[:20]
    return "-".join(filter(None, (slug, hashlib.sha256(str(checkout).encode()).hexdigest()[:6])))


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance: its state folder, and the PIDs of its booted machines."""

    name: str

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is not a valid instance name: use lower case letters, digits and hyphens, at most 41"
            )

    @property
    def folder(self) -> Path:
        return cache_folder(os.environ) / "instances" / self.name

    @property
    def machines(self) -> list[str]:
        """Return the names of the machines that have a disk: cloud and nodes."""
        return sorted(path.parent.name for path in self.folder.glob("*/machine.json"))

    @property
    def nodes(self) -> list[str]:
        return [name for name in self.machines if name != CLOUD]

    def mark_up(self) -> None:
        """Record that the instance has been brought up completely."""
        (self.folder / "up").touch()

    @property
    def is_up(self) -> bool:
        """Whether the instance has been brought up completely and runs."""
        return (self.folder / "up").exists() and all(self.pid(name) for name in self.machines)

    def disk(self, machine: str) -> Path:
        return self.folder / machine

    def remember(self, machine: str, pid: int) -> None:
        """Record which process is PID 1 of a machine."""
        record = self.disk(machine) / "machine.json"
        beside = record.with_suffix(".new")
        beside.write_text(json.dumps({"pid": pid, "started": started(pid)}))
        beside.replace(record)

    def pid(self, machine: str) -> int | None:
        """Return a machine's PID 1 as this machine numbers it; None if it has ended."""
        try:
            record = json.loads((self.disk(machine) / "machine.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        pid = int(record["pid"])
        return pid if started(pid) == record["started"] else None

    def forget(self) -> None:
        """Remove the state of an instance whose processes have ended."""
        shutil.rmtree(self.folder, ignore_errors=True)


def own() -> Instance:
    """Return the instance that the environment variable names, by default this checkout's own."""
    return Instance(os.environ.get(NAME_VARIABLE) or default_name(ROOT))


def started(pid: int) -> str:
    """Return a process's start time by the kernel's clock, which tells it from a later process with the same PID; "" if
    it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
