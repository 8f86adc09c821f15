"""An HTTP/2 client whose requests are relayed to a server by the hub, on one connection for an entire test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from tests.addons.support.proxied import FROM_NODE, Http2Server, Proxy, Raw
from tests.hub.support.http2 import Streams


@asynccontextmanager
async def connected[Server: Raw | Http2Server](
    server: Server,
) -> AsyncIterator[tuple[Proxy[Server], Streams]]:
    """Connect an HTTP/2 client whose requests the hub relays to the server."""
    with taddons.context(Proxyserver()):
        proxy = Proxy(server, Raw(FROM_NODE))
        proxy.failover = None
        proxy.is_streamed = True
        async with proxy.serve(is_h2=True), asyncio.timeout(20):
            streams = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
            try:
                yield proxy, streams
            finally:
                await streams.close()


async def ask(streams: Streams, path: str = "/") -> int:
    """Return the status of a complete response."""
    stream = streams.get(path, {})
    await streams.until(lambda: stream in streams.ended)
    return streams.status[stream]


async def watch(streams: Streams, count: int) -> list[int]:
    """Open this many streams whose responses do not end."""
    opened = [streams.get("/watch", {}) for _ in range(count)]
    await streams.until(lambda: all(streams.received[each] for each in opened))
    assert {streams.status[each] for each in opened} == {200}
    return opened
