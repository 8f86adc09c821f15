"""A web page in a browser on the node can read nothing through the ports that require no credentials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.addons.support.samples import secret
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import LOOPBACK
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.process import Hub

SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
async def hub(tmp_path: Path, cloud: ScriptableCloud) -> AsyncIterator[Hub]:
    """Run a hub whose identity may read a Secret."""
    cloud.store.create(secret(k="djE="))
    cloud.access.tokens["hub-token"] = User("system:node:node-1", ("system:nodes",))
    cloud.access.anonymous = False
    kubeconfig = await asyncio.to_thread(
        write_kubeconfig, tmp_path / "hub.kubeconfig", cloud.url, token="hub-token"
    )
    made = Hub(tmp_path, cloud.url, kubeconfig=kubeconfig, flags=("--allowed-hosts", "hub.example"))
    await asyncio.to_thread(made.start)
    yield made
    await asyncio.to_thread(made.stop)


async def test_a_web_page_can_read_nothing(hub: Hub, cloud: ScriptableCloud) -> None:
    evil = "https://evil.example"
    by_a_page = (
        {
            "Origin": evil,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        },
        {"Host": "evil.example:10261"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Origin": "null"},
    )
    async with aiohttp.ClientSession() as session:

        async def get(url: str, headers: dict[str, str]) -> tuple[int, str]:
            async with session.get(url, headers=headers) as answer:
                return answer.status, await answer.text()

        code, body = await get(hub.url + SECRETS, {})
        assert code == 200
        assert "djE=" in body, "components of the node may"
        assert (await get(hub.url + SECRETS, {"Host": "hub.example"}))[0] == 200
        cloud.requests.clear()
        for headers in by_a_page:
            code, body = await get(hub.url + SECRETS, headers)
            assert (code, '"kind":"Status"' in body) == (403, True), headers
            for page in ("/metrics", "/debug/sources", "/healthz"):
                assert (await get(hub.admin_url + page, headers))[0] == 403, (page, headers)
        assert [each.path for each in cloud.requests if each.path == SECRETS] == []


async def test_an_absolute_target_overrides_the_host_header(hub: Hub) -> None:
    """The header Host is then ignored (RFC 9112, 3.2.2)."""

    async def status(port: int, target: str) -> int:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
        writer.transport.abort()
        return int(line.split()[1])

    for port, path in ((hub.port, SECRETS), (hub.admin_port, "/healthz")):
        assert await status(port, f"http://localhost{path}") == 200
        assert await status(port, f"http://evil.example{path}") == 403
