"""Copies of pods on a disk of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from addons.copies import Copies, Copy
from kube.codec import codec_for
from kube.disk import Disk
from kube.disk_writer import DiskWriter
from kube.encoding import Encoding
from kube.reflector import Question
from kube.request import ResourceType
from kube.store import Store

PODS = Question(ResourceType("", "v1", "pods"), encoding=Encoding.JSON)
CODEC = codec_for(Encoding.JSON)


def pod(name: str, version: int) -> bytes:
    metadata = {"namespace": "default", "name": name, "resourceVersion": str(version)}
    return orjson.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


def shown(store: Store) -> dict[str, int]:
    return {item.key[1]: item.version for item in store}


@asynccontextmanager
async def copies_in(folder: Path) -> AsyncIterator[Copies]:
    made = Copies(Disk(folder), DiskWriter())
    await made.open()
    yield made
    made.close()


async def settled(copy: Copy) -> None:
    """Return when all is written; what lingers need not."""
    while copy._is_writing or copy._next is not None:
        if not copy._is_writing:
            copy._begin()
        assert copy._writing is not None
        await copy._writing


async def restored(copies: Copies, identity: str = "") -> Store:
    store = Store()
    assert await copies.copy(identity, PODS, store).restore() is None
    return store
