"""Copies, as tests of the disk read and change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsBytes

from kube.disk.copy_rows import COUNT, Key, Meta, copy_batch, object_name, read_copy
from kube.disk.database import Batch, Disk, TableChanges


def raws(disk: Disk, source: str = "s") -> list[bytes]:
    read = read_copy(disk, source)
    assert read is not None
    return sorted(read[1])


def change(version: int, rows: dict[Key, bytes | None], count: int) -> Batch:
    """Return a change of the copy `s`, after which it has `count` objects."""
    named = {object_name(key): value for key, value in rows.items()}
    return copy_batch("s", {"version": version, COUNT: count}, TableChanges(named))


def full_copy(name: str, meta: Meta, objects: Mapping[Key, SupportsBytes]) -> Batch:
    """Return the batch that replaces a copy."""
    rows = {object_name(key): value for key, value in objects.items()}
    return copy_batch(name, {**meta, COUNT: len(rows)}, TableChanges(rows, replaces_all=True))
