"""A connection that ends, at whatever moment: its client sees the end, and nothing of it is left."""

from __future__ import annotations

import asyncio
import socket
import struct
import weakref
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.events import Event, HookCompleted
from mitmproxy.proxy.layers.http._hooks import HttpErrorHook
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.test import taddons, tflow
from mitmproxy.utils import asyncio_utils

from addons.proxy import hub_handler
from addons.proxy.http import played_stream
from addons.proxy.http.client_connections import BoundedHttp2Server
from addons.proxy.http.http_connections import STREAM_WINDOW
from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.messages import refuse
from addons.proxy.hub_handler import HubHandler, close_client, layers_below
from addons.requests.exchange.client_socket import GatheringWriter
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


def held_at(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Has an addon work on each request at this hook: begun, and what lets it go on."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def think(handler: Handler, hook: StartHook) -> None:
        if hook.name == name:
            begun.set()
            await goes_on.wait()
        handler._proxy.hook(hook)

    monkeypatch.setattr(Handler, "handle_hook", think)
    return begun, goes_on


@pytest.mark.parametrize("is_mitmproxys", [False, True])
async def test_no_event_waits_for_the_end_of_another_one(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, is_mitmproxys: bool
) -> None:
    """A connection whose task was cancelled while it waited stayed open, and each hook cost a turn of the loop."""
    waited: list[bool] = []
    handle = ConnectionHandler.server_event

    async def note(self: ConnectionHandler, event: Event) -> None:
        waited.append(self._server_event_lock.locked())
        await handle(self, event)
        if isinstance(self, HubHandler):
            self._writer.flush()

    monkeypatch.setattr(HubHandler if is_mitmproxys else ConnectionHandler, "server_event", note)
    if is_mitmproxys:
        monkeypatch.setattr(HubHandler, "has_handled", lambda _handler, _hook: False)
    with asyncio_utils.set_eager_task_factory():  # as mitmproxy has it
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
            await reader.readuntil(b"hello\r\n")
            writer.close()
    assert any(waited) == is_mitmproxys


async def test_no_stack_grows_with_the_requests_that_come_in_one_packet(proxy: Proxy[Raw]) -> None:
    """Each that the hub answers at once is over before the next one is read."""
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


async def test_requests_that_came_behind_another_are_handled_in_turn(proxy: Proxy[Raw]) -> None:
    """Of many clients whose packets hold many requests, one goes on in a round of the loop, and others go between."""
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


async def test_a_client_is_not_late_while_an_addon_works_on_its_request(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    """mitmproxy ends a connection on which nothing happens for ten minutes; a person may hold a request for longer."""
    asked, answered = held_at(monkeypatch, "request")
    with asyncio_utils.set_eager_task_factory():  # as mitmproxy has it
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
            await asked.wait()
            may_end = proxy.handlers[0].timeout_watchdog.can_timeout
            assert not may_end.is_set()
            answered.set()
            await reader.readuntil(b"hello\r\n")
            assert may_end.is_set()
            writer.close()


async def test_nothing_waits_for_a_client_that_has_left() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        streams.reads = False
        server.tell_much(0, 1, STREAM_WINDOW)
        layer = proxy.layer
        while not layer.unread:  # noqa: ASYNC110 - the client is told of nothing
            await asyncio.sleep(0.01)
        client = layer.connections[proxy.handlers[0].client]
        assert isinstance(client, BoundedHttp2Server)
    assert (client.h2_conn.unread, layer.streams, layer.connections) == (0, {}, {})


async def test_a_hook_that_ends_after_its_connection_is_no_crash(caplog: pytest.LogCaptureFixture) -> None:
    """An addon may still work on the error of a request when nothing is left of the connection."""
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        handler, layer = proxy.handlers[0], proxy.handlers[0].layer
        assert isinstance(layer, HubHttpLayer)
        stream = layer.streams[1]
        hook = HttpErrorHook(stream.flow)
        layer.command_sources[hook] = stream
    await handler.server_event(HookCompleted(hook))
    assert not caplog.records


def parts_of(handler: Handler) -> list[weakref.ref[object]]:
    """All layers of a client's connection, what they speak with, and the tasks."""
    layers = layers_below(handler.layer)
    protocols = [each.h2_conn for each in layers if hasattr(each, "h2_conn")]
    tasks = [io.handler for io in handler.transports.values()]
    return [weakref.ref(each) for each in (handler, *layers, *protocols, *tasks)]


async def turns() -> None:
    """Let the loop forget the tasks that have ended."""
    for _ in range(5):
        await asyncio.sleep(0)


def alive(parts: list[weakref.ref[object]]) -> list[object]:
    return [found for each in parts if (found := each()) is not None]


async def gone(parts: list[weakref.ref[object]]) -> None:
    """Wait until none is alive; what is part of a cycle is for good."""
    async with asyncio.timeout(20):
        while alive(parts):  # noqa: ASYNC110 - what goes by itself tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("server", [Raw(ANSWER, kept=True), Http2Server(100)], ids=["HTTP/1.1", "HTTP/2"])
async def test_nothing_of_a_connection_outlives_it(server: Raw | Http2Server) -> None:
    """Of a client of HTTP/2 with requests that have ended, and one that goes on."""
    async with server.serve(), connected(server) as (proxy, streams):
        assert await ask(streams) == 200
        if isinstance(server, Http2Server):
            await watch(streams, 1)
        parts = parts_of(proxy.handlers.pop())
        assert len(alive(parts)) == len(parts) >= 5
    await gone(parts)


@pytest.mark.usefixtures("uncollected")
async def test_nothing_outlives_a_connection_that_its_client_has_reset(proxy: Proxy[Raw]) -> None:
    """As each does that leaves while the hub writes. asyncio keeps the error, whose frames name the connection."""
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
async def test_nothing_outlives_a_connection_whose_last_write_failed(proxy: Proxy[Raw]) -> None:
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        handler = proxy.handlers.pop()
        own = handler.transports[handler.client]
        assert isinstance(own.writer, GatheringWriter)
        assert own.handler is not None
        left = weakref.ref(own.writer)
        own.writer.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        own.handler.cancel()
        own.writer.write(b"bye")
        own.writer.flush()
        del handler, own
        while left() is not None:  # noqa: ASYNC110 - what goes by itself tells nobody
            await asyncio.sleep(0.01)
        writer.close()


@pytest.mark.usefixtures("uncollected")
async def test_without_this_all_of_it_would_wait_for_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_handler, "take_apart", lambda _: None)
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        parts = parts_of(proxy.handlers.pop())
    await turns()
    assert alive(parts)


@pytest.mark.usefixtures("uncollected")
async def test_a_request_is_gone_when_it_has_ended() -> None:
    """Its connection, which goes on for months, keeps nothing of it."""
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        (stream,) = await watch(streams, 1)
        layer = proxy.layer
        watched = weakref.ref(layer.streams[stream])
        streams.cancel(stream)
        while layer.streams:  # noqa: ASYNC110 - mitmproxy tells nobody that a stream ended
            await asyncio.sleep(0.01)
        assert await ask(streams) == 200
        assert watched() is None


async def test_a_body_counts_no_longer_when_its_client_leaves_before_a_decision(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A few such clients took all room for bodies, for as long as the hub ran."""
    asked, left = held_at(monkeypatch, "request")
    with taddons.context(Proxyserver()) as context:
        proxy = Proxy(context.options, Raw(ANSWER), Raw(FROM_NODE), HubHttpLayer)
        async with proxy.serve(), asyncio.timeout(20):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"POST http://hub/ HTTP/1.1\r\nHost: hub\r\nContent-Length: 4\r\n\r\nbody")
            await asked.wait()
            assert held_bodies() == 4
            writer.transport.abort()
        left.set()
        await turns()
    assert held_bodies() == 0
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("hook", ["requestheaders", "request", "responseheaders"])
async def test_addons_learn_that_the_client_of_a_request_they_work_on_has_left(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """The hub kept the flow of each such request for as long as it ran: some 700 after three minutes of attacks."""
    begun, left = held_at(monkeypatch, hook)
    async with proxy.serve(), asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await begun.wait()
        writer.transport.abort()
    left.set()
    await turns()
    assert proxy.hooks[-2:] == [hook, "error"]


def test_a_client_is_closed_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    client, said = tflow.tclient_conn(), list[str]()
    handler: Any = HubHandler.__new__(HubHandler)
    task = SimpleNamespace(cancel=said.append)
    handler.client, handler.transports = client, {client: SimpleNamespace(handler=task)}
    monkeypatch.setitem(played_stream.players, client.id, handler)
    assert close_client(client.id, "late")
    assert said == ["late"]
    assert not close_client("nobody", "late")
