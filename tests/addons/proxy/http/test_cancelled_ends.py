"""A connection that is cancelled at a bad moment, through a real mitmproxy: it ends, and its client learns of that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from mitmproxy.connection import Server
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from addons.connections import PATCHES
from addons.proxy.http.cancelled_ends import WholeEnds
from addons.proxy.http.flow_control import PausingHandler
from addons.proxy.patches import install
from tests.addons.support.proxied import Handler, Proxy, Raw, watching_proxy


@pytest.fixture(autouse=True)
def installed(restored: None) -> None:
    install(PATCHES)


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with watching_proxy() as made:
        yield made


async def cut_while_events_wait(handler: Handler) -> Server:
    """Cancel the task of the connection to the server twice while another event is being processed."""
    server = next(each for each in handler.transports if isinstance(each, Server))
    task = handler.transports[server].handler
    assert task is not None
    async with handler._server_event_lock:
        task.cancel("closed by command")
        await asyncio.sleep(0)
        task.cancel("closed by command")
        await asyncio.sleep(0)
    await asyncio.wait([task])
    return server


async def test_a_connection_that_is_cancelled_while_events_wait_is_closed(proxy: Proxy[Raw]) -> None:
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        server = await cut_while_events_wait(proxy.handlers[0])
        assert server not in proxy.handlers[0].transports
        assert await reader.read() == b""
        writer.close()


def test_the_hubs_handlers_end_this_way() -> None:
    assert issubclass(PausingHandler, WholeEnds)
    assert PausingHandler.__mro__.index(WholeEnds) < PausingHandler.__mro__.index(ProxyConnectionHandler)
