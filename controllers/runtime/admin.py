"""The admin port: `/healthz` and `/readyz` for kubelet, `/metrics` for Prometheus, and `/fleet` for people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from controllers.runtime import metrics
from controllers.settings import Address
from kube.bounds import reached
from kube.http.bounded_server import BoundedServer, listen

MAX_HEADERS = 32
"""Headers of a request, of 8,190 bytes each; kubelet, Prometheus and the API server send ten."""

type ReadinessCheck = Callable[[], str]
"""Why the process is not ready, "" when it is ready."""

type Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def admin_server(
    probes: Address, page: Address, check: ReadinessCheck, fleet: Handler
) -> AsyncIterator[None]:
    """Serve the probes, and beside the page of metrics the one of the `fleet`, while the context is open.

    They are on one port if the addresses are equal. OSError when a port is taken.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        why = check()
        return web.Response(status=503, text=f"{why}\n") if why else web.Response(text="ok\n")

    async def exposition(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(metrics.exposition)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    handlers: dict[Address, dict[str, Handler]] = {probes: {"/healthz": healthz, "/readyz": readyz}}
    handlers.setdefault(page, {}).update({"/metrics": exposition, "/fleet": fleet})
    async with AsyncExitStack() as stack:
        for address, routes in handlers.items():
            if address.port:
                await stack.enter_async_context(_server(address, routes))
        yield


@asynccontextmanager
async def _server(address: Address, routes: dict[str, Handler]) -> AsyncIterator[None]:
    app = web.Application()
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    server = BoundedServer(app, count_refused, max_headers=MAX_HEADERS, lingering_time=0.0)
    listening = await listen(address.host, address.port)
    await server.start(listening)
    try:
        yield
    finally:
        await server.finish()
        for listener in listening:
            listener.close()


def count_refused() -> None:
    """Count a connection that a port of the manager closed for another one."""
    reached("connections to a port of the manager")
