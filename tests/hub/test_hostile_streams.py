"""Clients of HTTP/2 with more streams than they read, against a hub's own process and the real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from scripts.benchmark.load import resident_megabytes
from tests.cloud.real import RealCloud
from tests.hub.support.hostile import GRANT
from tests.hub.support.http2 import Streams
from tests.hub.support.process import Hub
from tests.hub.support.streams import listed

SERVICES = 16
SIZE = 64 * 1024
"""Bytes of each Service: what one list has is a megabyte, which no stream holds for a client that does not read."""
LISTS, WATCHES = 250, 450
"""On one connection."""
GROWTH = 50.0
"""Megabytes that the hub may grow by; all that the client asks for is 700."""
WITHIN = 10.0
"""Seconds for kubelet's answer, on a machine that has much else to do; without a bound it never came."""


@pytest.fixture
async def large_services(real_cloud: RealCloud) -> AsyncIterator[None]:
    path = "/api/v1/namespaces/default/services"
    names = [f"large-{number}" for number in range(SERVICES)]
    for name in names:
        metadata = {"name": name, "annotations": {"large": "x" * SIZE}}
        body = {"metadata": metadata, "spec": {"clusterIP": "None"}}
        await asyncio.to_thread(real_cloud.admin.post, path, body)
    yield
    for name in names:
        await asyncio.to_thread(real_cloud.admin.delete, f"{path}/{name}")


async def test_streams_that_nobody_reads_wait_and_kubelet_is_answered(
    hub: Hub, real_cloud: RealCloud, large_services: None
) -> None:
    await asyncio.to_thread(real_cloud.apply, GRANT)
    token = await asyncio.to_thread(real_cloud.token, "default", "hostile-reader")
    headers = {"authorization": f"Bearer {token}", "user-agent": "kube-proxy/v1"}
    await listed(hub.url, "/api/v1/services", component="kubelet", resourceVersion="0")
    before = resident_megabytes(hub.process.pid)
    streams = await Streams.open(hub.tls_port, str(hub.authority))
    streams.reads = streams.keep = False
    try:
        for number in range(LISTS + WATCHES):
            query = "&watch=true" if number >= LISTS else ""
            streams.get(f"/api/v1/services?resourceVersion=0{query}", headers)
        async with asyncio.timeout(60):
            while await asyncio.to_thread(hub.metric, "edgehub_watchers") < WATCHES:
                async with asyncio.timeout(WITHIN):
                    await listed(hub.url, "/api/v1/services", component="kubelet", resourceVersion="0")
        assert resident_megabytes(hub.process.pid, "VmHWM") - before < GROWTH
    finally:
        await streams.close()
