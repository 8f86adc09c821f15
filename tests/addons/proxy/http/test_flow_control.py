"""Clients that do not read, or that send behind an open watch, through a real mitmproxy: what it holds is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from mitmproxy.proxy import mode_servers

from addons.connections import PATCHES
from addons.proxy.http import flow_control
from addons.proxy.http.flow_control import PausingHandler
from addons.proxy.http.http_layer import MAX_UNREAD, STREAM_UNREAD, LastingHttpLayer
from addons.proxy.patches import install
from addons.telemetry import metrics
from tests.addons.support.lasting_parts import connected, watch
from tests.addons.support.observed import value_of
from tests.addons.support.patched import patched
from tests.addons.support.proxied import Endless, Http2Server, Proxy, Raw, watching_proxy

SOCKETS = 32 * 2**20
"""Bytes that the sockets' buffers between the server and mitmproxy may take, generously."""


@pytest.fixture(autouse=True)
def installed(restored: None) -> None:
    install(PATCHES)


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with watching_proxy() as made:
        yield made


async def settled(sent: Endless) -> int:
    """What a server has sent, when it cannot send any more."""
    before = -1
    while sent.sent != before:
        before = sent.sent
        await asyncio.sleep(0.3)
    return before


async def test_a_server_waits_for_a_client_of_http2_that_does_not_read() -> None:
    server = Endless()
    async with connected(server) as (proxy, streams):
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await settled(server) < SOCKETS
        layer = proxy.handlers[0].layer
        assert isinstance(layer, LastingHttpLayer)
        assert STREAM_UNREAD < sum(layer.unread.values()) < STREAM_UNREAD + 2**20
        streams.cancel(stream)
        async with asyncio.timeout(10):
            await server.ended.wait()


async def test_a_stream_that_is_not_read_is_reset_and_others_go_on() -> None:
    server = Http2Server(100)
    before = value_of(metrics.UNREAD_STREAMS)
    async with server.serve(), connected(server) as (_, streams):
        abandoned, read = await watch(streams, 2)
        streams.reads = False
        server.tell_much(0, 1, MAX_UNREAD + 2**20)
        await streams.until(lambda: abandoned in streams.ended)
        assert read not in streams.ended
    assert value_of(metrics.UNREAD_STREAMS) == before + 1


async def test_without_a_pause_what_a_client_leaves_unread_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mitmproxy's own handler does; then only the bound for the whole connection is left."""
    monkeypatch.setattr(flow_control.Pausing, "_is_full", lambda *_: False)
    server = Endless()
    async with connected(server) as (_, streams):
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        await server.ended.wait()
    assert server.sent > MAX_UNREAD


async def test_a_client_that_sends_on_behind_a_watch_is_closed(proxy: Proxy[Raw]) -> None:
    before = value_of(metrics.CONNECTIONS_REFUSED.labels("ahead"))
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        with pytest.raises(ConnectionError):
            await write_on(writer)
    assert value_of(metrics.CONNECTIONS_REFUSED.labels("ahead")) == before + 1


async def write_on(writer: asyncio.StreamWriter) -> None:
    """Until the other side has enough."""
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


def test_mitmproxy_makes_handlers_of_this_kind() -> None:
    assert patched(mode_servers, "ProxyConnectionHandler") is PausingHandler
