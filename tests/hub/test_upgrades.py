"""exec, attach and port-forward: upgraded connections pass in both directions, over SPDY and over WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from scripts.benchmark.load import resident_megabytes
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started

EXEC = "/api/v1/namespaces/default/pods/web/exec?command=sh&stdin=true&stdout=true"
PROTOCOL = "v5.channel.k8s.io"
MESSAGES, SIZE = 150, 500_000
"""The 75 MB that a client sends through one connection and gets back, as a copy of files would."""
GROWTH = 40.0
"""Megabytes that the hub may grow by meanwhile."""


@pytest.fixture
async def spdy_cloud() -> AsyncIterator[str]:
    """A cloud that takes the upgrade that kubectl asks for, and then sends each line back in capitals."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"upgrade: spdy/3.1" not in head.lower():
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                assert head.startswith(b"POST " + EXEC.encode())
                assert b"x-stream-protocol-version: v4.channel.k8s.io" in head.lower()
                writer.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
                    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
                )
                while line := await reader.readline():
                    writer.write(line.upper())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_spdy_passes_in_both_directions(spdy_cloud: str, tmp_path: Path) -> None:
    async with started(Hub(tmp_path, spdy_cloud), ready=False) as hub:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.port)
        writer.write(
            f"POST {EXEC} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: Upgrade\r\n"
            "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 101"), head
        for word in (b"ls\n", b"x" * 60_000 + b"\n"):
            writer.write(word)
            assert await asyncio.wait_for(reader.readuntil(b"\n"), 10) == word.upper()
        before = resident_megabytes(hub.process.pid)
        async with asyncio.timeout(60):
            for _ in range(MESSAGES * SIZE // 60_000):
                writer.write(b"x" * 60_000 + b"\n")
                await reader.readuntil(b"\n")
        assert resident_megabytes(hub.process.pid, "VmHWM") - before < GROWTH
        writer.close()
        await writer.wait_closed()


async def test_a_websocket_passes_in_both_directions(cloud: ScriptableCloud, tmp_path: Path) -> None:
    async with (
        started(Hub(tmp_path, cloud.url)) as hub,
        aiohttp.ClientSession() as session,
        session.ws_connect(hub.url + EXEC, protocols=(PROTOCOL,)) as socket,
    ):
        assert socket.protocol == PROTOCOL
        for word in (b"\x00ls", b"\x00" + b"y" * 60_000):
            await socket.send_bytes(word)
            assert await asyncio.wait_for(socket.receive_bytes(), 10) == word.upper()
        before = resident_megabytes(hub.process.pid)
        async with asyncio.timeout(60):
            for _ in range(MESSAGES):
                await socket.send_bytes(bytes(SIZE))
                assert len(await socket.receive_bytes()) == SIZE
        assert resident_megabytes(hub.process.pid, "VmHWM") - before < GROWTH
