"""A client connection that lasts, through a real mitmproxy: servers that fail, end and fill up are no end of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mitmproxy import connection
from mitmproxy.addons import next_layer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import layers
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._http2 import Http2Client
from mitmproxy.test import taddons

from addons import http_layer
from addons.http_layer import KeptHttp1Client, LastingHttpLayer, install
from tests.addons.proxied import ANSWER, FROM_NODE, Http2Server, Proxy, Raw
from tests.hub.http2 import Streams

LIMIT = 10
"""As many as mitmproxy asks of a server that has not said yet how many it takes."""


@pytest.fixture(autouse=True)
def installed(restored: None) -> None:
    """For this test alone."""
    install()


@asynccontextmanager
async def connected[Server: Raw | Http2Server](
    server: Server, layer_type: type[HttpLayer] = LastingHttpLayer
) -> AsyncIterator[tuple[Proxy[Server], Streams]]:
    """A client of HTTP/2 whose requests go to the server through mitmproxy."""
    with taddons.context(Proxyserver()) as context:
        proxy = Proxy(context.options, server, Raw(FROM_NODE), layer_type)
        proxy.rescue = None
        proxy.is_streamed = True
        async with proxy.serve(is_h2=True), asyncio.timeout(20):
            streams = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
            try:
                yield proxy, streams
            finally:
                await streams.close()


async def ask(streams: Streams, path: str = "/") -> int:
    """The status of a whole answer."""
    stream = streams.get(path, {})
    await streams.until(lambda: stream in streams.ended)
    return streams.status[stream]


async def watch(streams: Streams, count: int) -> list[int]:
    """That many streams that are answered and go on."""
    opened = [streams.get("/watch", {}) for _ in range(count)]
    await streams.until(lambda: all(streams.received[each] for each in opened))
    assert {streams.status[each] for each in opened} == {200}
    return opened


def known(proxy: Proxy[Any]) -> list[connection.Server]:
    """The upstream connections that the client's connection remembers."""
    layer = proxy.handlers[0].layer
    assert isinstance(layer, HttpLayer)
    return [each for each in layer.connections if isinstance(each, connection.Server)]


@pytest.mark.parametrize("layer_type", [LastingHttpLayer, HttpLayer])
async def test_a_server_that_comes_back_is_connected_to_again(layer_type: type[HttpLayer]) -> None:
    """mitmproxy's own layer never tries again: where that is no longer so, this module is not needed."""
    async with connected(Raw(ANSWER), layer_type) as (proxy, streams):
        assert await ask(streams) == 200
        free = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        up, proxy.server.port = proxy.server.port, free.sockets[0].getsockname()[1]
        free.close()
        await free.wait_closed()
        assert await ask(streams) == 502
        again = Raw(ANSWER)
        again.port = proxy.server.port
        back = await asyncio.start_server(again._handle, "127.0.0.1", again.port)
        async with back:
            assert await ask(streams) == (200 if layer_type is LastingHttpLayer else 502)
        proxy.server.port = up
        assert await ask(streams) == 200


@pytest.mark.parametrize("server", [Raw(ANSWER), Raw(b"")], ids=["ends", "fails"])
async def test_connections_that_ended_are_forgotten(server: Raw) -> None:
    async with connected(server) as (proxy, streams):
        for _ in range(20):
            await ask(streams)
        assert len(server.got) == 20
        assert len(known(proxy)) <= 2


async def test_connections_that_could_not_be_opened_are_forgotten() -> None:
    async with connected(Raw(ANSWER)) as (proxy, streams):
        proxy.server.port = 1
        for _ in range(20):
            assert await ask(streams) == 502
        assert len(known(proxy)) <= 2


async def test_streams_share_a_connection() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (_, streams):
        await watch(streams, 20)
        assert server.streams == [20]


async def test_past_a_servers_limit_another_connection_is_opened() -> None:
    server = Http2Server(LIMIT)
    async with server.serve(), connected(server) as (proxy, streams):
        # The server's limit is known from the first answer on.
        assert await ask(streams) == 200
        await watch(streams, 3 * LIMIT)
        assert len(server.streams) == 3
        assert await ask(streams) == 200
        assert len(known(proxy)) == 4


async def test_room_of_an_earlier_connection_is_used_again() -> None:
    server = Http2Server(LIMIT)
    async with server.serve(), connected(server) as (_, streams):
        assert await ask(streams) == 200
        watches = await watch(streams, 2 * LIMIT)
        streams.cancel(watches[0])
        assert await ask(streams) == 200
        assert len(server.streams) == 2


async def test_more_than_a_connection_may_take_do_not_wait_for_the_same_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_layer, "MAX_STREAMS", LIMIT)
    server = Http2Server(LIMIT)
    async with server.serve(), connected(server) as (_, streams):
        await watch(streams, 3 * LIMIT)
        assert len(server.streams) == 3


async def test_numbers_of_ended_streams_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_layer, "MAX_REMEMBERED", 5)
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        (watched,) = await watch(streams, 1)
        for _ in range(50):
            assert await ask(streams) == 200
        (conn,) = known(proxy)
        layer = proxy.handlers[0].layer
        assert isinstance(layer, HttpLayer)
        client = layer.connections[conn].context.layers[-1]
        assert isinstance(client, Http2Client)
        assert len(client.our_stream_id) == len(client.their_stream_id) <= 11
        assert watched in client.our_stream_id, "it is still open"


async def test_a_server_of_http1_keeps_its_connections() -> None:
    server = Raw(ANSWER, kept=True)
    async with connected(server) as (_, streams):
        for _ in range(5):
            assert await ask(streams) == 200
        assert server.accepted == 1
        at_once = [streams.get("/", {}) for _ in range(3)]
        await streams.until(lambda: streams.ended.issuperset(at_once))
        assert {streams.status[each] for each in at_once} == {200}
        assert (server.accepted, len(server.got)) == (3, 8), "one answers one at a time"


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    server = Raw(ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), kept=True)
    async with connected(server) as (_, streams):
        assert [await ask(streams) for _ in range(3)] == [200] * 3
        assert server.accepted == 3


def test_mitmproxy_makes_layers_of_these_kinds() -> None:
    assert vars(next_layer)["HttpLayer"] is vars(layers)["HttpLayer"] is LastingHttpLayer
    assert vars(http_layers)["Http1Client"] is KeptHttp1Client
