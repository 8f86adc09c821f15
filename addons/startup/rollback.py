"""The record of a failed upgrade in the state folder: `edgehub upgrade` writes it, and the former hub reports it."""

from __future__ import annotations

from pathlib import Path

from kube.disk.atomic_file import read_file, write_file
from kube.log_lines import printable

FILE = "rolled-back"
LONGEST = 300
"""Characters of a record: a Lease's annotation carries it to the fleet."""


def write_rollback(state: Path, why: str) -> None:
    """Record why the node has its former hub again; OSError where the disk refuses it."""
    write_file(state / FILE, printable(" ".join(why.split()))[:LONGEST].encode())


def clear_rollback(state: Path) -> None:
    """Forget the last failure; OSError where that cannot be."""
    (state / FILE).unlink(missing_ok=True)


def read_rollback(state: Path) -> str:
    """Return the record; "" without a readable one."""
    try:
        return printable(read_file(state / FILE).decode(errors="replace"))[:LONGEST]
    except OSError:
        return ""
