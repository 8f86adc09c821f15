"""The admin port: `/healthz` and `/readyz` for kubelet, `/metrics` for Prometheus, and `/fleet` for people."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from html import escape
from ipaddress import ip_address

import orjson
from aiohttp import web

from controllers.runtime import metrics
from controllers.runtime.bounded_server import BoundedServer, listen
from controllers.settings import Address
from kube.bounds import reached
from kube.errors import StatusError
from kube.fleet import COLUMNS, FleetHub, read_fleet, read_progress
from kube.http.browser_check import OwnAddress, refuse_web_pages
from kube.http.client import Client, Unreachable

MAX_HEADERS = 32
"""Headers of a request, 8,190 bytes each; kubelet, Prometheus and the API server send ten."""
FRESH = 5.0
"""Seconds for which one reading of the cluster answers all requests."""
STYLE = (
    "body{font:14px system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.3em .8em;text-align:left;border-bottom:1px solid #ddd;white-space:nowrap}"
    "td:last-child{white-space:normal}tr.needs td:last-child{color:#a40000}"
)

type ReadinessCheck = Callable[[], str]
"""Why the process is not ready, "" when it is ready."""

type Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def admin_server(
    probes: Address, page: Address, check: ReadinessCheck, fleet: Handler
) -> AsyncIterator[None]:
    """Serve the probes, the metrics and the `fleet` page while the context is open.

    Equal addresses share one port. OSError if a port is taken.
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
    """Count a connection that a port of the manager closed in favour of another one."""
    reached("connections to a port of the manager")


class FleetPage:
    """Answers with the fleet's state, which it reads only on request."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = asyncio.Lock()
        self._read: tuple[float, datetime, list[FleetHub], list[str]] | None = None

    async def answer(self, request: web.Request) -> web.Response:
        """Return the fleet as HTML for a browser, else as JSON. 403 over the network, because it is an inventory of all
        nodes.

        Also 403 for a page of another site, whose name may resolve to the loopback address (DNS rebinding).
        """
        if not ip_address(request.remote or "0.0.0.0").is_loopback:  # noqa: S104 - not bound
            raise web.HTTPForbidden(text="only by `kubectl port-forward`, or on the manager's own machine\n")
        try:
            refuse_web_pages(OwnAddress("localhost", 0), "", lambda name: request.headers.getall(name, []))
        except StatusError:
            raise web.HTTPForbidden(text="not for a web page of another site\n") from None
        try:
            now, hubs, progress = await self._fleet()
        except (StatusError, Unreachable) as error:
            raise web.HTTPBadGateway(text=f"{error}\n") from None
        if "text/html" in request.headers.get("Accept", ""):
            return web.Response(text=page(hubs, now, progress), content_type="text/html")
        body = orjson.dumps([hub.to_json() for hub in hubs])
        return web.Response(body=body, content_type="application/json")

    async def _fleet(self) -> tuple[datetime, list[FleetHub], list[str]]:
        async with self._lock:
            clock = asyncio.get_running_loop().time()
            if self._read is None or clock - self._read[0] > FRESH:
                now = datetime.now(UTC)
                hubs, progress = await read_fleet(self._client, now), await read_progress(self._client)
                self._read = clock, now, hubs, progress
            return self._read[1:]


def page(hubs: list[FleetHub], now: datetime, progress: Sequence[str] = ()) -> str:
    """Format the table as HTML. The hubs' reports and the pools' progress are escaped text."""
    needy = sum(bool(hub.needs) for hub in hubs)
    rows = "".join(
        f"<tr{' class=needs' if hub.needs else ''}>"
        + "".join(f"<td>{escape(cell)}" for cell in hub.cells(now))
        for hub in hubs
    )
    head = "".join(f"<th>{name}" for name in COLUMNS)
    return (
        f"<!doctype html><meta charset=utf-8><title>Edgehub fleet</title><link rel=icon href='data:,'>"
        f"<style>{STYLE}</style>"
        f"<h1>{len(hubs)} hub{'s' * (len(hubs) != 1)}, {needy} need{'s' * (needy == 1)} a person</h1>"
        f"<p>As of {now:%Y-%m-%d %H:%M:%S} UTC. up and down: bytes over the link today.</p>"
        f"<table><tr>{head}{rows}</table>\n" + "".join(f"<p>{escape(line)}</p>\n" for line in progress)
    )
