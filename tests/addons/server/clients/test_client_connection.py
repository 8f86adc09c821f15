"""A connection that ends at any moment: its client is notified, and no object of it stays in memory."""

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


async def test_pipelined_requests_do_not_nest_calls(proxy: Proxy[Raw]) -> None:
    """Each request answered by the hub ends before the next one is parsed."""
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
    """With many clients and many requests in a packet, each client gets one request per iteration of the loop."""
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


async def test_unread_data_of_a_disconnected_client_is_dropped() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        streams.reads = False
        server.tell_much(0, 1, STREAM_WINDOW)
        layer = proxy.layer
        await until(lambda: layer.unread > 0)
    await until(lambda: (layer.unread, layer.count) == (0, 0))


def parts_of(handler: Handler) -> list[weakref.ref[object]]:
    """Return the objects that serve a client's connection and its requests."""
    assert handler.served is not None
    return [weakref.ref(each) for each in (handler, handler.served, *handler.served.requests)]


def alive(parts: list[weakref.ref[object]]) -> list[object]:
    return [found for each in parts if (found := each()) is not None]


async def wait_until_freed(parts: list[weakref.ref[object]]) -> None:
    """Wait until none of the objects is alive, without a run of the garbage collector: a reference cycle would never
    end."""
    await until(lambda: not alive(parts), 20)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    "server", [Raw(ANSWER, available=True), Http2Server(100)], ids=["HTTP/1.1", "HTTP/2"]
)
async def test_a_closed_connection_leaves_no_objects(server: Raw | Http2Server) -> None:
    """The client uses HTTP/2, with finished requests and an open one."""
    async with server.serve(), connected(server) as (proxy, streams):
        assert await ask(streams) == 200
        if isinstance(server, Http2Server):
            await watch(streams, 1)
        parts = parts_of(proxy.handlers.pop())
        assert len(alive(parts)) == len(parts) >= 2
    await wait_until_freed(parts)


@pytest.mark.usefixtures("uncollected")
async def test_a_reset_connection_leaves_no_objects(proxy: Proxy[Raw]) -> None:
    """A client that leaves while the hub writes resets its connection; asyncio stores the error, whose frames refer to
    the connection."""
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        parts = parts_of(proxy.handlers.pop())
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()
        await wait_until_freed(parts)


@pytest.mark.usefixtures("uncollected")
async def test_a_finished_request_leaves_no_objects() -> None:
    """A connection may be open for months, so it must not refer to finished requests."""
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


async def test_a_disconnected_clients_body_does_not_count_against_the_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A few such clients once used up the bound of bodies until the hub's end."""
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
async def test_addons_are_notified_when_the_client_of_an_open_request_disconnects(
    proxy: Proxy[Raw], hook: str
) -> None:
    """The hub once retained the flow of each such request until its end: 700 after three minutes of attacks."""
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
async def test_closing_a_connection_waits_a_bounded_time_for_unread_data(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    if not reads:
        monkeypatch.setattr(client_connection, "CLOSE_TIMEOUT", 0.01)
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


async def test_close_client_reports_if_the_client_existed(proxy: Proxy[Raw]) -> None:
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        assert close_client(proxy.handlers[0].client.id, "late")
        assert await reader.read() == b""
        writer.close()
    assert not close_client("nobody", "late")
