"""A connection that mitmproxy cancels at a bad moment: the connection ends, and its client sees the end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import traceback
import weakref
from collections.abc import Iterator

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Server
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.events import HookCompleted
from mitmproxy.proxy.layers.http._hooks import HttpErrorHook
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import taddons

from addons.proxy.handlers import ending_handler
from addons.proxy.handlers.ending_handler import EndingHandler, layers_below
from addons.proxy.handlers.flow_control import PausingHandler
from addons.proxy.http.client_connections import BoundedHttp2Server
from addons.proxy.http.http_connections import STREAM_WINDOW
from addons.proxy.http.http_layer import HubHttpLayer
from tests.addons.support.lasting_parts import ask, connected, watch
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


async def test_a_connection_that_is_cancelled_before_it_is_used_is_closed_and_counted_out(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that left at that moment used up descriptors, and in the end the count of the hub's connections."""
    seen: list[str] = []
    hook = proxy.hook

    def cancel_as_it_opens(started: StartHook) -> None:
        hook(started)
        (found,) = started.args()
        if not isinstance(found, ServerConnectionHookData):
            return
        seen.append(started.name)
        if started.name == "server_connected":
            handler, loop = proxy.handlers[0], asyncio.get_running_loop()
            task, lock = handler.transports[found.server].handler, handler._server_event_lock
            assert task is not None
            with contextlib.suppress(StopIteration):
                lock.acquire().send(None)  # nobody has it, so it is had at once
            loop.call_soon(task.cancel)
            loop.call_soon(lock.release)

    monkeypatch.setattr(proxy, "hook", cancel_as_it_opens)
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 502"), "the client learns of it"
    assert seen == ["server_connect", "server_connected", "server_disconnected"]
    assert not [each for each in proxy.handlers[0].transports if isinstance(each, Server)]


@pytest.mark.parametrize("last", ["server_connect", "server_connect_error"])
async def test_a_client_learns_of_a_connection_that_is_cancelled_before_it_is_open(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, last: str
) -> None:
    """The first failure of a server has the hub cut all connections to it, the one that fails among them."""
    servers: list[Server] = []

    async def cancel(handler: Handler, hook: StartHook) -> None:
        handler._proxy.hook(hook)
        (found,) = hook.args()
        if not isinstance(found, ServerConnectionHookData):
            return
        servers.append(found.server)
        if hook.name != last:
            found.server.error = "refused"
            return
        task = asyncio.current_task()
        assert task is not None
        task.cancel("cut by the hub")
        await asyncio.sleep(0)

    monkeypatch.setattr(Handler, "handle_hook", cancel)
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502")
    assert all(each.error for each in servers), "the layer forgets a connection that has an error"
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("is_mitmproxys", [False, True])
async def test_nothing_that_was_read_ahead_lasts_longer_than_its_connection(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, is_mitmproxys: bool
) -> None:
    """mitmproxy's frame has a cycle with the exception that ended it, and keeps the reader until a collection."""
    if is_mitmproxys:
        monkeypatch.setattr(ending_handler, "clear_frames", lambda _: None)
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        task = next(
            io.handler for each, io in proxy.handlers[0].transports.items() if isinstance(each, Server)
        )
        assert task is not None
        writer.close()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
        own = next(each for each in frames if each.f_code is ConnectionHandler.handle_connection.__code__)
        assert ("reader" in own.f_locals) == is_mitmproxys


async def test_nothing_waits_for_a_client_that_has_left() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        streams.reads = False
        server.tell_much(0, 1, STREAM_WINDOW)
        layer = proxy.handlers[0].layer
        assert isinstance(layer, HubHttpLayer)
        await streams.until(lambda: layer.unread > 0)
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


async def test_an_event_that_waits_while_its_connection_ends_is_no_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        (stream,) = await watch(streams, 1)
        handler, layer = proxy.handlers[0], proxy.handlers[0].layer
        assert isinstance(layer, HubHttpLayer)
        hook = HttpErrorHook(layer.streams[stream].flow)
        layer.command_sources[hook] = layer.streams[stream]
        async with handler._server_event_lock:
            late = asyncio.create_task(handler.server_event(HookCompleted(hook)))
            await asyncio.sleep(0)
            handler._let_go()
        await late
        ended = handler.transports[handler.client].handler
        assert ended is not None
        ended.cancel("closed by the test")
    assert not caplog.records


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is part of a cycle stays, as it would in a process that seldom looks for garbage."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("server", [Raw(ANSWER, kept=True), Http2Server(100)], ids=["HTTP/1.1", "HTTP/2"])
async def test_nothing_of_a_connection_outlives_it(server: Raw | Http2Server) -> None:
    """Of a client of HTTP/2 with requests that have ended, and one that goes on."""
    async with server.serve(), connected(server) as (proxy, streams):
        assert await ask(streams) == 200
        if isinstance(server, Http2Server):
            await watch(streams, 1)
        parts = parts_of(proxy.handlers.pop())
        assert len(alive(parts)) == len(parts) >= 6
    await turns()
    assert alive(parts) == []


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
        while alive(parts):  # noqa: ASYNC110 - what goes by itself tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("uncollected")
async def test_without_this_all_of_it_would_wait_for_a_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_handler, "take_apart", lambda _: None)
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
        layer = proxy.handlers[0].layer
        assert isinstance(layer, HubHttpLayer)
        watched = weakref.ref(layer.streams[stream])
        streams.cancel(stream)
        while layer.streams:  # noqa: ASYNC110 - mitmproxy tells nobody that a stream ended
            await asyncio.sleep(0.01)
        assert await ask(streams) == 200
        assert watched() is None


async def test_a_body_counts_no_longer_when_its_client_leaves_before_the_addons_have_decided(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A few such clients took all room for bodies, for as long as the hub ran."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def think(handler: Handler, hook: StartHook) -> None:
        if hook.name == "request":
            asked.set()
            await left.wait()
        handler._proxy.hook(hook)

    monkeypatch.setattr(Handler, "handle_hook", think)
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
async def test_addons_learn_of_the_end_of_a_request_on_which_they_work_when_its_client_leaves(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """The hub kept the flow of each such request for as long as it ran: some 700 after three minutes of attacks."""
    begun, left = asyncio.Event(), asyncio.Event()

    async def think(handler: Handler, started: StartHook) -> None:
        if started.name == hook:
            begun.set()
            await left.wait()
        handler._proxy.hook(started)

    monkeypatch.setattr(Handler, "handle_hook", think)
    async with proxy.serve(), asyncio.timeout(20):
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await begun.wait()
        writer.transport.abort()
    left.set()
    await turns()
    assert proxy.hooks[-2:] == [hook, "error"]


def test_the_hubs_handlers_end_this_way() -> None:
    assert issubclass(PausingHandler, EndingHandler)
    assert PausingHandler.__mro__.index(EndingHandler) < PausingHandler.__mro__.index(ProxyConnectionHandler)
