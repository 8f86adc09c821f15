"""The memory that an interface costs a node: the flows that it keeps are bounded, however many requests come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from scripts.benchmark.load import resident_megabytes
from tests.addons.support.samples import config_map
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started

MOST = 250
"""Megabytes that the hub may ever have resident: 170 here, 330 where it keeps each flow."""
REQUESTS, BYTES, CLIENTS = 360, 600_000, 4
"""Each answer is kept whole, while there is room."""


async def test_however_many_requests_leave_a_hub_beside_an_interface_small(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    """Few and large ones here, which take the same room: `scripts/bench --interface` makes ten thousand."""
    cloud.store.create(config_map({"text": "x" * BYTES}))
    settings = ("--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    hub = Hub(tmp_path, cloud.url, flags=("--ui", "web", "--", *settings))
    url = f"{hub.url}/api/v1/namespaces/kube-system/configmaps/yurt-hub-cfg"
    left = iter(range(REQUESTS))

    async def client(session: aiohttp.ClientSession) -> None:
        for _ in left:
            async with session.get(url) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

    async with started(hub):
        async with aiohttp.ClientSession(headers={"User-Agent": "kubelet/v1.36"}) as session:
            await asyncio.gather(*(client(session) for _ in range(CLIENTS)))
        assert resident_megabytes(hub.pid, "VmHWM") < MOST
        assert await asyncio.to_thread(hub.metric, "edgehub_flows_removed_total") > 0
