"""A connection that ends at any moment: its client sees the end, and no object of it remains."""

from __future__ import annotations

import asyncio
import socket
import struct
import weakref
from collections import Counter
from collections.abc import Iterator

import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons
from mitmproxy.utils import asyncio_utils

from addons.server.accept import close_client
from addons.server.clients import client_connection
from addons.server.clients.http2_client import STREAM_WINDOW
from addons.server.messages import refuse
from kube.errors import forbidden
from tests.addons.support.lasting_parts import ask, connected, watch
from tests.addons.support.observed import until
from tests.addons.support.proxied import (
    ANSWER,
    FROM_NODE,
    Handler,
    Http2Server,
    Proxy,
    Raw,
    held_bodies,
    watching_proxy,
)
from tests.support.background import beside


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with watching_proxy() as made:
        yield made


async def test_no_stack_grows_with_the_requests_that_come_in_one_packet(proxy: Proxy[Raw]) -> None:
    """Each request that the hub answers at once ends before the next one is read."""
    many = 500
    proxy.decide = lambda flow: refuse(flow, forbidden("not for you"))
    with asyncio_utils.set_eager_task_factory():  # as mitmproxy has it
        async with proxy.serve(), asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n" * many)
            for _ in range(many):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 403 ")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.close()


async def test_pipelined_requests_of_many_clients_are_handled_alternately(proxy: Proxy[Raw]) -> None:
    """Each of many clients with many requests in a packet gets one request a round of the loop."""
    clients, many, rounds = 8, 20, [0]
    handled = Counter[int]()

    def decide(flow: http.HTTPFlow) -> None:
        handled[rounds[-1]] += 1
        refuse(flow, forbidden("not for you"))

    async def count() -> None:
        while True:
            rounds[-1] += 1
            await asyncio.sleep(0)

    proxy.decide = decide
    with asyncio_utils.set_eager_task_factory():  # as mitmproxy has it
        async with proxy.serve(), asyncio.timeout(60), beside(count()):
            writers = [(await asyncio.open_connection("127.0.0.1", proxy.port))[1] for _ in range(clients)]
            for writer in writers:
                writer.write(b"GET / HTTP/1.1\r\nHost: hub\r\n\r\n" * many)
            await until(lambda: handled.total() == clients * many)
            for writer in writers:
                writer.close()
    assert max(handled.values()) <= 2, "a first one, and one whose turn it is"


async def test_nothing_waits_for_a_client_that_has_left() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        streams.reads = False
        server.tell_much(0, 1, STREAM_WINDOW)
        layer = proxy.layer
        await until(lambda: layer.unread > 0)
    await until(lambda: (layer.unread, layer.count) == (0, 0))


def parts_of(handler: Handler) -> list[weakref.ref[object]]:
    """The objects that serve a client's connection, and its requests."""
    assert handler.served is not None
    return [weakref.ref(each) for each in (handler, handler.served, *handler.served.requests)]


def alive(parts: list[weakref.ref[object]]) -> list[object]:
    return [found for each in parts if (found := each()) is not None]


async def gone(parts: list[weakref.ref[object]]) -> None:
    """Wait until none is alive; what is part of a cycle is for good."""
    await until(lambda: not alive(parts), 20)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    "server", [Raw(ANSWER, available=True), Http2Server(100)], ids=["HTTP/1.1", "HTTP/2"]
)
async def test_nothing_of_a_connection_outlives_it(server: Raw | Http2Server) -> None:
    """The client speaks HTTP/2, with requests that have ended and an open one."""
    async with server.serve(), connected(server) as (proxy, streams):
        assert await ask(streams) == 200
        if isinstance(server, Http2Server):
            await watch(streams, 1)
        parts = parts_of(proxy.handlers.pop())
        assert len(alive(parts)) == len(parts) >= 2
    await gone(parts)


@pytest.mark.usefixtures("uncollected")
async def test_nothing_outlives_a_connection_that_its_client_has_reset(proxy: Proxy[Raw]) -> None:
    """Each client that leaves while the hub writes resets it. asyncio keeps the error, whose frames name the
    connection."""
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        parts = parts_of(proxy.handlers.pop())
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()
        await gone(parts)


@pytest.mark.usefixtures("uncollected")
async def test_a_request_is_gone_when_it_has_ended() -> None:
    """A connection may last for months, so it must not keep ended requests."""
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        (stream,) = await watch(streams, 1)
        layer = proxy.layer
        (request,) = layer.requests
        watched = weakref.ref(request)
        del request
        streams.cancel(stream)
        await until(lambda: not layer.count)
        assert await ask(streams) == 200
        assert watched() is None


async def test_a_body_counts_no_longer_when_its_client_has_left(caplog: pytest.LogCaptureFixture) -> None:
    """A few such clients filled the bound of bodies, for as long as the hub ran."""
    with taddons.context(Proxyserver()):
        proxy = Proxy(Raw(ANSWER), Raw(FROM_NODE))
        asked, left = proxy.held_at("request")
        async with proxy.serve(), asyncio.timeout(20):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"POST http://hub/ HTTP/1.1\r\nHost: hub\r\nContent-Length: 4\r\n\r\nbody")
            await asked.wait()
            assert held_bodies() == 4
            writer.transport.abort()
            await proxy.handlers[0].ended.wait()
            left.set()
    assert held_bodies() == 0
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("hook", ["requestheaders", "request", "responseheaders"])
async def test_addons_learn_that_the_client_of_a_request_they_work_on_has_left(
    proxy: Proxy[Raw], hook: str
) -> None:
    """The hub held the flow of each such request for as long as it ran: some 700 after three minutes of attacks."""
    begun, left = proxy.held_at(hook)
    async with proxy.serve(), asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await begun.wait()
        writer.transport.abort()
        await proxy.handlers[0].ended.wait()
        left.set()
    assert proxy.hooks[-2:] == [hook, "error"]


@pytest.mark.parametrize("reads", [False, True])
async def test_the_last_that_is_written_has_a_bounded_time_to_be_read(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    if not reads:
        monkeypatch.setattr(client_connection, "LAST_READ", 0.01)
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one that reads, too
        much = bytes(2**24)
        proxy.layer.write(much)
        proxy.layer.close()
        assert proxy.layer.unwritten
        if reads:
            writer.transport.resume_reading()  # type: ignore[attr-defined]  # it is one that reads, too
            assert len(await reader.read()) >= len(much)
        await proxy.handlers[0].ended.wait()
        writer.close()


async def test_a_client_is_closed_where_there_is_one(proxy: Proxy[Raw]) -> None:
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        assert close_client(proxy.handlers[0].client.id, "late")
        assert await reader.read() == b""
        writer.close()
    assert not close_client("nobody", "late")
