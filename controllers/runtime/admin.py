"""The admin port: `/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from controllers.runtime import metrics

type ReadinessCheck = Callable[[], str]
"""Why the process is not ready, "" when it is ready."""


@asynccontextmanager
async def admin_server(listen: str, port: int, check: ReadinessCheck) -> AsyncIterator[None]:
    """Serve the admin port while the context is open; port 0 opens none. OSError when the port is taken."""
    if port == 0:
        yield
        return

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why = check()
        return web.Response(status=503, text=f"{why}\n") if why else web.Response(text="ok\n")

    async def exposition(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(metrics.exposition)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, listen, port).start()
        yield
    finally:
        await runner.cleanup()
