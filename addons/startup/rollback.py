"""The record of a failed upgrade, in the state folder: written by `edgehub upgrade`, reported by the restored hub."""

from __future__ import annotations

from pathlib import Path

from kube.disk.atomic_file import read_file, write_file
from kube.log_lines import printable

FILE = "rolled-back"
LONGEST = 300
"""Maximum characters of a record: a Lease's annotation sends it to the fleet."""


def write_rollback(state: Path, why: str) -> None:
    """Record why the previous hub was restored on this node. OSError if the disk fails."""
    write_file(state / FILE, printable(" ".join(why.split()))[:LONGEST].encode())


def clear_rollback(state: Path) -> None:
    """Delete the record. OSError if the disk fails."""
    (state / FILE).unlink(missing_ok=True)


def read_rollback(state: Path) -> str:
    """Return the record; "" if it is missing or unreadable."""
    try:
        return printable(read_file(state / FILE).decode(errors="replace"))[:LONGEST]
    except OSError:
        return ""
