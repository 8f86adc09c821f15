"""What connections do for the manager's client: they ask before they send, and keep nothing of an answer."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controllers.runtime.session_options import session_options


async def test_it_asks_before_it_sends_and_an_exception_ends_the_request() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("Cookie", ""))
        return web.Response(text="{}", headers={"Set-Cookie": "a=b"})

    app = web.Application()
    app.router.add_get("/x", answer)
    may = iter([True, True, False])

    def check() -> None:
        if not next(may):
            raise LookupError("no longer")

    async with TestServer(app) as server, aiohttp.ClientSession(**session_options(check, None)) as session:
        for _ in range(2):
            async with session.get(server.make_url("/x")) as response:
                assert response.status == 200
        with pytest.raises(LookupError):
            await session.get(server.make_url("/x"))
    assert asked == ["", ""]
