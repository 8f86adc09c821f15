"""exec, attach and port-forward over WebSocket: bytes are relayed in both directions, and the connection is not
reused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from scripts.benchmark.load import resident_megabytes
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started

EXEC = "/api/v1/namespaces/default/pods/web/exec?command=sh&stdin=true&stdout=true"
MESSAGES, SIZE = 150, 500_000
"""The 75 MB that a client sends over one connection and gets back, like a copy of files."""


async def test_a_websocket_is_relayed_in_both_directions(cloud: ScriptableCloud, tmp_path: Path) -> None:
    protocol = "v5.channel.k8s.io"
    # Megabytes by which the hub may grow meanwhile.
    growth = 40.0
    async with (
        started(Hub(tmp_path, cloud.url)) as hub,
        aiohttp.ClientSession() as session,
        session.ws_connect(hub.url + EXEC, protocols=(protocol,)) as socket,
    ):
        assert socket.protocol == protocol
        for name in (b"\x00ls", b"\x00" + b"y" * 60_000):
            await socket.send_bytes(name)
            assert await asyncio.wait_for(socket.receive_bytes(), 10) == name.upper()
        before = resident_megabytes(hub.process.pid)
        async with asyncio.timeout(60):
            for _ in range(MESSAGES):
                await socket.send_bytes(bytes(SIZE))
                assert len(await socket.receive_bytes()) == SIZE
        assert resident_megabytes(hub.process.pid, "VmHWM") - before < growth
