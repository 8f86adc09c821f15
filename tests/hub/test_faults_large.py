"""Fifty thousand objects of one kind: served, stored, and served offline, while other clients are served."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path

import pytest

from kube.wire.encoding import Encoding
from scripts.benchmark.load import resident_megabytes
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed

MANY = 50_000


@pytest.mark.timeout(240)
async def test_fifty_thousand_objects_are_served_and_stored_in_bounded_memory(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    def wait_until_stored(database: Path) -> None:
        """Wait until all objects are on disk; the hub writes them asynchronously."""
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            for _ in range(600):
                if connection.execute("SELECT count(*) FROM Cache").fetchone()[0] > MANY:
                    return
                time.sleep(0.1)
        raise TimeoutError("not on disk after a minute")

    def fill() -> None:
        """Create objects like `cloud.store.create`, without its defaults and checks."""
        for number in range(MANY):
            metadata = {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"}
            value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": "v" * 200}}
            cloud.store.storage.write("configmaps", ("default", f"c{number}"), value)

    fill()
    config_maps = "/api/v1/configmaps"
    # Clients that list all objects at the same time.
    at_once = 3
    # The maximum resident megabytes of the hub: 150 here, 230 if complete bodies were built for each client.
    most = 190.0
    async with started(Hub(tmp_path, cloud.url, flags=("--wait", "120"))) as hub:

        async def many() -> int:
            how = Encoding.PROTOBUF
            return len(
                await listed(hub.url, config_maps, component="kubelet", encoding=how, resourceVersion="0")
            )

        listing = asyncio.create_task(many())
        others = 0
        while not listing.done():
            got = await listed(hub.url, "/api/v1/services", component="kube-proxy", resourceVersion="0")
            assert got == {}
            others += 1
        assert await listing == MANY
        assert others > 10
        assert await asyncio.gather(*(many() for _ in range(at_once))) == [MANY] * at_once
        assert resident_megabytes(hub.process.pid, "VmHWM") < most
        await asyncio.to_thread(wait_until_stored, hub.state / "cache" / "cache.db")
        await asyncio.to_thread(hub.kill)
        await cloud.stop()
        await asyncio.to_thread(hub.start)
        assert await asyncio.gather(*(many() for _ in range(at_once))) == [MANY] * at_once
        assert resident_megabytes(hub.process.pid, "VmHWM") < most
