"""Copies as tests of the disk read and change them."""

from __future__ import annotations

from kube.disk.copy_rows import COUNT, Key, copy_batch, object_name, read_copy
from kube.disk.database import Batch, Disk, TableChanges


def raws(disk: Disk, source: str = "s") -> list[bytes]:
    read = read_copy(disk, source)
    assert read is not None
    return sorted(read[1])


def change(version: int, rows: dict[Key, bytes | None], count: int) -> Batch:
    """A change of copy s, after which it has so many objects."""
    named = {object_name(key): value for key, value in rows.items()}
    return copy_batch("s", {"version": version, COUNT: count}, TableChanges(named))
