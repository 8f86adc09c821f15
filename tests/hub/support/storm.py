"""A source on disk under a storm of events, to be killed at any moment: `python -m tests.hub.support.storm FOLDER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import orjson

from addons.offline import write_behind as product
from addons.offline.copies import DiskCopies
from addons.offline.disk_access import DiskAccess
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

PODS = ListWatch(ResourceType("", "v1", "pods"), encoding=Encoding.JSON)
CODEC = codec_for(Encoding.JSON)
NAMES = 23
LIST_EVERY = 300
"""Events between two whole lists."""
LINGER = 0.001
"""Seconds that changes linger here: a killer of 100 ms is to meet many transactions."""


def event(state: dict[str, int], version: int) -> str:
    """Change the state as the cloud does at a version. Returns the type of the event."""
    name = f"n{version * 7 % NAMES}"
    if name in state and version % 3 == 0:
        del state[name]
        return "DELETED"
    known = name in state
    state[name] = version
    return "MODIFIED" if known else "ADDED"


def state_at(version: int) -> dict[str, int]:
    """Names and versions of what the cloud had."""
    state: dict[str, int] = {}
    for each in range(1, version + 1):
        event(state, each)
    return state


def pod(name: str, version: int) -> bytes:
    metadata = {"namespace": "default", "name": name, "resourceVersion": str(version)}
    filler = "x" * (version % 40 * 100)
    return orjson.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "filler": filler})


async def storm(folder: Path) -> None:
    """Go on from what is on disk, for good."""
    product.LINGER = LINGER
    copies = DiskCopies(DiskAccess(Disk(folder), DiskWriter()))
    await copies.open()
    store = Store()
    await copies.copy("", PODS, store).restore()
    if not store.complete:
        store.replace(CODEC, "v1", "Pod", 1, [pod(name, at) for name, at in state_at(1).items()])
    state, version = state_at(store.version), store.version
    print("open", flush=True)
    while True:
        version += 1
        kind = event(state, version)
        if version % LIST_EVERY == 0:
            store.replace(CODEC, "v1", "Pod", version, [pod(name, at) for name, at in state.items()])
        else:
            store.apply(kind, pod(f"n{version * 7 % NAMES}", version))
        if version % 5 == 0:
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(storm(Path(sys.argv[1])))
