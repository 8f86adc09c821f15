"""The admin port."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from controllers.runtime.admin import admin_server
from tests.cloud.ports import LOOPBACK, free_port


async def test_it_says_why_it_is_not_ready() -> None:
    port, trouble = free_port(), ["nodes: not listed yet"]
    async with admin_server(LOOPBACK, port, lambda: trouble[0]), aiohttp.ClientSession() as session:

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


async def test_port_0_serves_nothing() -> None:
    async with admin_server(LOOPBACK, 0, lambda: ""):
        pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(LOOPBACK, free_port())


async def test_a_taken_port_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            async with admin_server(LOOPBACK, taken.getsockname()[1], lambda: ""):
                pass
