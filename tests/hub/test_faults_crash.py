"""kill -9 at random moments of a write storm: each copy on disk is one that the cloud really had at its version."""

from __future__ import annotations

import asyncio
import threading
from random import Random

from addons.offline.copies import list_watch_of
from kube.disk.copy_rows import METAS, read_copy, read_metas
from kube.disk.database import Disk
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import headless
from tests.hub.support.process import Hub
from tests.hub.support.streams import listed

HUBS = 4
"""Kills."""


def copied(disk: Disk, source: str) -> tuple[int, dict[str, int]] | None:
    """Version of a copy, and its objects by name with their versions."""
    read = read_copy(disk, source)
    if read is None:
        return None
    meta, raws = read
    peeks = [codec_for(Encoding(meta["encoding"])).peek(raw) for raw in raws]
    return meta["version"], {f"{peek.namespace}/{peek.name}": peek.version for peek in peeks}


class Writes(threading.Thread):
    """Writes services of a namespace until told to stop."""

    def __init__(self, cloud: RealCloud, namespace: str) -> None:
        super().__init__(name="write storm")
        self._cloud = cloud
        self._path = f"/api/v1/namespaces/{namespace}/services"
        self.ended = threading.Event()
        self.error: Exception | None = None
        self.made = 0

    def run(self) -> None:
        admin = self._cloud.admin
        try:
            while not self.ended.is_set():
                name = f"s{self.made % 10}"
                if self.made >= 10 and self.made % 3 == 0:
                    admin.delete(f"{self._path}/{name}")
                    admin.post(self._path, headless(name))
                elif self.made >= 10:
                    admin.patch(f"{self._path}/{name}", {"metadata": {"labels": {"n": str(self.made)}}})
                else:
                    admin.post(self._path, headless(name))
                self.made += 1
        except Exception as error:
            self.error = error


async def test_the_disk_of_a_killed_hub(
    linked: tuple[Hub, Link], real_cloud: RealCloud, namespace: str
) -> None:
    hub, _ = linked
    random, seen = Random(5), set()
    writes = Writes(real_cloud, namespace)
    writes.start()
    try:
        for _ in range(HUBS):
            await asyncio.to_thread(hub.start)
            for path in ("/api/v1/services", f"/api/v1/namespaces/{namespace}/services"):
                await listed(hub.url, path, component="kube-proxy", resourceVersion="0")
            await asyncio.sleep(random.uniform(0, 0.5))
            await asyncio.to_thread(hub.kill)
            disk = Disk(hub.state / "cache")
            disk.open()
            for source, meta in read_metas(disk.rows(METAS)).items():
                list_watch = list_watch_of(meta)
                if list_watch.type.resource != "services":
                    continue
                copy = copied(disk, source)
                assert copy is not None
                version, objects = copy
                exact = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
                path = list_watch.path
                then = await asyncio.to_thread(lambda: real_cloud.admin.get(path, **exact))  # noqa: B023 - awaited
                assert objects == {
                    f"{each['metadata']['namespace']}/{each['metadata']['name']}": int(
                        each["metadata"]["resourceVersion"]
                    )
                    for each in then["items"]
                }
                seen.add(version)
            disk.close()
    finally:
        writes.ended.set()
        writes.join()
    assert writes.error is None
    assert len(seen) >= HUBS
    assert not (hub.state / "cache.unreadable").exists()
