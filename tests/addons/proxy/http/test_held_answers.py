"""Answers that mitmproxy holds in whole, and clients that take them as they read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from addons.connections import Connections
from addons.offline.cached_response import MAX_KEPT
from addons.proxy.http.http_connections import STREAM_UNREAD
from addons.proxy.http.http_layer import HubHttpLayer
from addons.requests.exchange.client_addresses import ClientAddress
from addons.requests.exchange.open_connections import OpenConnections
from addons.requests.exchange.request_bodies import BODY_TIME
from addons.telemetry import metrics
from tests.addons.support.answering import REQUEST
from tests.addons.support.lasting_parts import connected
from tests.addons.support.observed import value_of
from tests.addons.support.proxied import Proxy, Raw, watching_proxy
from tests.hub.support.http2 import Streams

LISTS = 3


def saying(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


@asynccontextmanager
async def holding() -> AsyncIterator[tuple[Proxy[Raw], Streams]]:
    """A client of a proxy that holds each answer, of MAX_KEPT bytes, until it has all of it."""
    async with connected(Raw(saying(MAX_KEPT))) as (proxy, streams):
        proxy.is_streamed, proxy.failover = False, proxy.turn
        yield proxy, streams


def layer_in(proxy: Proxy[Raw]) -> HubHttpLayer:
    layer = proxy.handlers[0].layer
    assert isinstance(layer, HubHttpLayer)
    return layer


async def until_held(address: ClientAddress, size: int) -> None:
    """Return when the hub holds so much of answers for the clients at an address, and all has come."""
    async with asyncio.timeout(10):
        while address.answers.size != size:  # noqa: ASYNC110 - nobody is told of a piece of a body
            await asyncio.sleep(0.01)


async def test_a_client_that_reads_gets_all_of_many_lists() -> None:
    """Of three lists of 4 MiB, two were more than it may leave unread."""
    async with holding() as (proxy, streams):
        asked = [streams.get("/", {}) for _ in range(LISTS)]
        await streams.until(lambda: streams.ended >= {*asked})
        assert [streams.received[each] for each in asked] == [MAX_KEPT] * LISTS
        assert proxy.hooks.count("response") == LISTS
        assert "error" not in proxy.hooks
        assert layer_in(proxy).address.answers.size == 0


async def test_what_a_client_does_not_read_counts_as_held_and_goes_with_its_stream() -> None:
    async with holding() as (proxy, streams):
        streams.reads = False
        asked = [streams.get("/", {}) for _ in range(LISTS)]
        await streams.until(lambda: streams.status.keys() >= {*asked})
        layer = layer_in(proxy)
        await until_held(layer.address, LISTS * MAX_KEPT)
        assert layer.unread <= LISTS * 2 * STREAM_UNREAD
        streams.cancel(asked[0])
        await until_held(layer.address, (LISTS - 1) * MAX_KEPT)
        assert "error" not in proxy.hooks, "the addons have seen the whole answer"
        streams.reads = True
        for each in asked:
            streams.take(each)
        await streams.until(lambda: streams.ended == {*asked[1:]})
        assert [streams.received[each] for each in asked[1:]] == [MAX_KEPT] * (LISTS - 1)


async def test_an_answer_is_held_for_a_bounded_time() -> None:
    before = value_of(metrics.UNREAD_STREAMS)
    async with holding() as (proxy, streams):
        streams.reads = False
        asked = streams.get("/", {})
        await streams.until(lambda: asked in streams.status)
        times = [time.monotonic(), time.monotonic() + BODY_TIME]
        limits = Connections(OpenConnections(1000), lambda: times[0])
        limits.client_connected(proxy.handlers[0].client)
        address = layer_in(proxy).address
        await limits._end_late_bodies()
        assert address.answers.size == MAX_KEPT
        times.pop(0)
        await limits._end_late_bodies()
        assert address.answers.size == 0
        await streams.until(lambda: asked in streams.ended)
        assert streams.received[asked] < MAX_KEPT
    assert value_of(metrics.UNREAD_STREAMS) == before + 1


@pytest.mark.parametrize("size", [STREAM_UNREAD, STREAM_UNREAD + 1])
async def test_a_client_of_http1_gets_one_after_the_other(size: int) -> None:
    with watching_proxy() as proxy:
        proxy.server = Raw(saying(size))
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST * 2)
            for _ in range(2):
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(size) == bytes(size)
            writer.transport.abort()
