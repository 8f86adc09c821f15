"""Upstream connections through a real mitmproxy: which one a request gets, and what is kept of one that ended."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from mitmproxy.proxy.commands import RequestWakeup
from mitmproxy.proxy.events import Wakeup
from mitmproxy.proxy.layers.http import HttpLayer

from addons.proxy.http import upstream_connections
from addons.proxy.http.http_layer import HubHttpLayer
from tests.addons.support.lasting_parts import ask, connected, known, watch
from tests.addons.support.proxied import ANSWER, Http2Server, Raw

LIMIT = 10
"""As many as mitmproxy asks of a server that has not said yet how many it takes."""


@pytest.mark.parametrize("layer_type", [HubHttpLayer, HttpLayer])
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
            assert await ask(streams) == (200 if layer_type is HubHttpLayer else 502)
        proxy.server.port = up
        assert await ask(streams) == 200


@pytest.mark.parametrize("server", [Raw(ANSWER), Raw(b"")], ids=["ends", "fails"])
async def test_connections_that_ended_are_forgotten(server: Raw) -> None:
    async with connected(server) as (proxy, streams):
        for _ in range(20):
            await ask(streams)
        assert len(server.got) == 20
        assert len(known(proxy)) <= 2


async def test_of_an_ended_connection_of_http2_nothing_waits_for_its_next_ping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """mitmproxy pings after a minute. Each caller with a token has a connection, and may bring many tokens a second."""
    server = Http2Server(100)
    gc.disable()
    try:
        async with server.serve(), connected(server) as (proxy, streams):
            assert await ask(streams) == 200
            handler, layer = proxy.handlers[0], proxy.handlers[0].layer
            assert isinstance(layer, HttpLayer)
            (ended,) = known(proxy)
            protocol = weakref.ref(layer.connections[ended].context.layers[-1])
            (ping,) = [
                each
                for each, source in layer.command_sources.items()
                if isinstance(each, RequestWakeup) and source is layer.connections[ended]
            ]
            server.close(0)
            while ended.timestamp_end is None:  # noqa: ASYNC110 - mitmproxy tells nobody
                await asyncio.sleep(0.01)
            assert await ask(streams) == 200
            await handler.server_event(Wakeup(ping))
            assert protocol() is None
            assert known(proxy) != [ended]
    finally:
        gc.enable()
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


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
    monkeypatch.setattr(upstream_connections, "MAX_STREAMS", LIMIT)
    server = Http2Server(LIMIT)
    async with server.serve(), connected(server) as (_, streams):
        await watch(streams, 3 * LIMIT)
        assert len(server.streams) == 3
