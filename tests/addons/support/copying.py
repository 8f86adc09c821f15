"""Copies of pods on the test's own disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from addons.offline.copies import DiskCopies, DiskCopy
from addons.offline.tables.disk_access import DiskAccess
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

PODS = ListWatch(ResourceType("", "v1", "pods"), encoding=Encoding.JSON)
CODEC = codec_for(Encoding.JSON)


def pod(name: str, version: int) -> bytes:
    metadata = {"namespace": "default", "name": name, "resourceVersion": str(version)}
    return orjson.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


def shown(store: Store) -> dict[str, int]:
    return {item.key[1]: item.version for item in store}


@asynccontextmanager
async def copies_in(folder: Path, disk: Disk | None = None) -> AsyncIterator[DiskCopies]:
    """Open the copies in a state folder, or on the given disk."""
    made = DiskCopies(DiskAccess(disk or Disk(folder / "cache"), DiskWriter()))
    await made.open()
    try:
        yield made
    finally:
        made.access.close()


async def settled(copy: DiskCopy) -> None:
    """Return when all changes are written, without waiting for the linger time."""
    await copy.table.settled()


async def restored(copies: DiskCopies, identity: str = "") -> Store:
    store = Store()
    assert await copies.copy(identity, PODS, store).restore() is None
    return store
