"""A client of HTTP/2 that asks for much and reads nothing loses its connection; others are served."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.attacks import SLICES, Aim, repeat, unread_streams
from tests.hub.support.process import SLACK, Hub
from tests.hub.support.streams import listed

COUNT = 200
FILLER = "x" * 8_000
"""So that all streams of the attack together ask for more than a hundred megabytes."""


async def test_a_client_that_reads_nothing_loses_its_connection(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    for number in range(COUNT):
        metadata = {"name": f"s{number}", "annotations": {"filler": FILLER}}
        kind = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
        cloud.store.create({**kind, "metadata": metadata, "endpoints": []})
    cloud.access.tokens["token"] = User("pod")
    hub = Hub(tmp_path, cloud.url)
    await asyncio.to_thread(hub.start)
    try:
        aim = Aim(hub.port, hub.tls_port, "token", "token")
        attack = asyncio.create_task(repeat(aim, unread_streams, 0.1))
        try:
            await asyncio.to_thread(
                partial(hub.wait_for_metric, "edgehub_connections_refused_total", 1, SLACK, reason="unread")
            )
        finally:
            attack.cancel()
            await asyncio.gather(attack, return_exceptions=True)
        got = await listed(hub.url, SLICES, component="kubelet", resourceVersion="0")
        assert len(got) == COUNT
    finally:
        await asyncio.to_thread(hub.stop)
