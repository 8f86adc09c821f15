"""The admin port."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest
from aiohttp import web

from controllers.runtime.admin import MAX_HEADERS, admin_server
from controllers.settings import Address
from tests.cloud.ports import LOOPBACK, free_port


async def nobody(_: web.Request) -> web.Response:
    """In the place of the page of the fleet."""
    return web.Response()


async def test_it_says_why_it_is_not_ready() -> None:
    port, trouble = free_port(), ["nodes: not listed yet"]
    address = Address(LOOPBACK, port)
    async with admin_server(address, address, lambda: trouble[0], nobody), aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://{LOOPBACK}:{port}{path}") as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "nodes: not listed yet\n")
        trouble[0] = ""
        assert await get("/readyz") == (200, "ok\n")
        status, page = await get("/metrics")
        assert status == 200
        assert "edgehub_manager_leader" in page
        assert (await get("/other"))[0] == 404


async def test_a_head_has_so_many_lines() -> None:
    address = Address(LOOPBACK, free_port())
    headers = {f"X-{number}": "x" for number in range(MAX_HEADERS + 1)}
    async with (
        admin_server(address, address, lambda: "", nobody),
        aiohttp.ClientSession() as session,
        session.get(f"http://{LOOPBACK}:{address.port}/healthz", headers=headers) as answer,
    ):
        assert answer.status == 400


async def test_port_0_serves_nothing() -> None:
    async with admin_server(Address("", 0), Address("", 0), lambda: "", nobody):
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOOPBACK, free_port())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_without_a_host_it_listens_to_both_families(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
    address = Address("", free_port())
    async with admin_server(address, address, lambda: "", nobody):
        _, writer = await asyncio.open_connection(host, address.port)
        writer.close()
        await writer.wait_closed()
