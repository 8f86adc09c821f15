"""Disks that tests remove, fill, or block."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from kube.disk.database import Batch, Disk, DiskError
from kube.disk.marks import Marks


class Device(Disk):
    """A disk that can be full and can block. Records its writes."""

    def __init__(self, folder: Path, saved: Collection[str] = ()) -> None:
        super().__init__(folder / "cache", saved=saved)
        self.is_broken = False
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.batches: list[Batch] = []
        self.synced: list[bool] = []

    def write(self, batch: Batch, *, is_durable: bool = False) -> None:
        self.goes_on.wait(10)
        if self.is_broken:
            raise DiskError("No space left on device")
        super().write(batch, is_durable=is_durable)
        self.batches.append(batch)
        self.synced.append(is_durable)

    def value(self, table: str, name: str) -> bytes | None:
        self.goes_on.wait(10)
        return super().value(table, name)


def marked(access: DiskAccess) -> WriteBehind:
    """Return a durable table with deletion markers."""
    return WriteBehind(access, "durable", marks=Marks(access.disk.folder.with_name("marks")))
