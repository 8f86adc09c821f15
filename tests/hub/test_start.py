"""A client that connects while the hub starts waits for its response: a refused client would back off for longer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import LOOPBACK
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import SLACK, Hub


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Return the path of a kubeconfig that does not exist yet: the hub finishes its start once the test has written
    it."""
    os.mkfifo(tmp_path / "kubeconfig")
    return tmp_path / "kubeconfig"


async def test_a_client_that_connects_before_the_hub_is_ready_gets_a_response(
    cloud: ScriptableCloud, tmp_path: Path, kubeconfig: Path
) -> None:
    async def accepted(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as soon as the port accepts."""
        async with asyncio.timeout(SLACK):
            while True:
                try:
                    return await asyncio.open_connection(LOOPBACK, port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)

    hub = Hub(tmp_path / "hub", cloud.url, kubeconfig=kubeconfig)
    await asyncio.to_thread(hub.launch)
    request = b"GET /api/v1/services HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-proxy/v1\r\n\r\n"
    try:
        reader, writer = await accepted(hub.port)
        _, other = await accepted(hub.tls_port)
        writer.write(request)
        assert hub.process.lines == [], "the hub has not said that it starts"
        text = write_kubeconfig(tmp_path / "written", cloud.url).read_text()
        await asyncio.to_thread(kubeconfig.write_text, text)
        async with asyncio.timeout(SLACK):
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for each in (writer, other):
            each.close()
    finally:
        await asyncio.to_thread(hub.stop)
