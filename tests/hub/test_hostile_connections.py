"""Clients that exhaust connections, or send without end, against a hub's own process: kubelet gets responses
throughout."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from scripts.benchmark.load import resident_megabytes
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed

IDLE = 600
GROWTH = 40.0
"""Megabytes by which the hub may grow while much more data is sent to it."""
WITHIN = 5.0
"""Seconds for the response to kubelet, which takes milliseconds unless kubelet is locked out."""


async def is_answered(hub: Hub) -> bool:
    async with asyncio.timeout(WITHIN):
        await listed(hub.url, "/api/v1/services", component="kubelet", resourceVersion="0")
    return True


async def end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_idle_connections_lock_out_no_client(cloud: ScriptableCloud, tmp_path: Path) -> None:
    # The number of file descriptors on a system with a low hard limit.
    descriptors = 400
    limited = ("bash", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"')
    async with started(Hub(tmp_path, cloud.url, inside=limited)) as hub, AsyncExitStack() as stack:
        assert await is_answered(hub)
        for _ in range(IDLE):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            await asyncio.get_running_loop().sock_connect(idle, ("127.0.0.1", hub.tls_port))
        assert await is_answered(hub)
        refused = await asyncio.to_thread(hub.metric, "edgehub_connections_refused_total")
        assert refused >= IDLE - descriptors
        assert len(hub.process.lines) < 50, "no flood in the log"


@pytest.mark.parametrize("declared", [True, False])
async def test_the_body_of_a_refused_request_is_not_buffered(
    cloud: ScriptableCloud, tmp_path: Path, declared: bool
) -> None:
    body = 300_000_000
    async with started(Hub(tmp_path, cloud.url)) as hub:
        assert await is_answered(hub)
        before = resident_megabytes(hub.process.pid)
        context = ssl.create_default_context(cafile=str(hub.authority))
        _, writer = await asyncio.open_connection("127.0.0.1", hub.tls_port, ssl=context)
        framing = f"Content-Length: {body}" if declared else "Transfer-Encoding: chunked"
        head = f"POST /apis/apps/v1/namespaces/default/deployments HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n"
        writer.write(head.encode())
        chunk = b"x" * 60_000 if declared else b"ea60\r\n" + b"x" * 60_000 + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(body // 60_000):
                writer.write(chunk)
                await writer.drain()
        await end(writer)
        assert resident_megabytes(hub.process.pid, "VmHWM") - before < GROWTH
        assert await is_answered(hub)


async def test_endless_heads_are_not_buffered(cloud: ScriptableCloud, tmp_path: Path) -> None:
    async with started(Hub(tmp_path, cloud.url)) as hub:
        assert await is_answered(hub)
        before = resident_megabytes(hub.process.pid)

        async def send() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", hub.port)
            with contextlib.suppress(ConnectionError):
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                for _ in range(40):
                    writer.write(b"x" * 100_000)
                    await writer.drain()
            await end(writer)

        await asyncio.gather(*(send() for _ in range(50)))
        assert resident_megabytes(hub.process.pid, "VmHWM") - before < GROWTH
        began = time.monotonic()
        assert await is_answered(hub)
        assert time.monotonic() - began < WITHIN
