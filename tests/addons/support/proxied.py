"""Requests through the hub in this process, on sockets, to a misbehaving server; the hub may answer instead."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import h2.config
import h2.connection
import h2.errors
import h2.events
from hyperframe.frame import GoAwayFrame
from mitmproxy import ctx, hooks, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import mode_specs
from mitmproxy.test import taddons

from addons.requests.caller import Listener
from addons.requests.request_context import begin, context_of
from addons.server.accept import Accepted
from addons.server.clients.client_connection import ClientConnection
from addons.server.limits.client_addresses import listeners
from kube.http.transport.connection_pool import Connection, ConnectionPool
from kube.http.transport.http1_connection import Http1Connection
from kube.http.transport.http2_connection import Http2Connection
from tests.addons.support.samples import lead, request_context

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserver"
WATCH = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
FROM_NODE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnode"


class Listening(ABC):
    port = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        tasks: list[asyncio.Task[None]] = []

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(asyncio.current_task())  # type: ignore[arg-type]  # this is one
            await self._handle(reader, writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    @abstractmethod
    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""


class Raw(Listening):
    """A server that sends these bytes for each request and records the requests; it closes the connection after each
    unless `kept`."""

    def __init__(self, says: bytes, *, available: bool = False) -> None:
        self.says = says
        self.got: list[bytes] = []
        self.accepted = 0
        self._count_stored = available

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            await self._answer(reader, writer)
            while self._count_stored:
                await self._answer(reader, writer)
        writer.close()
        await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
        lengths = [int(value) for name, _, value in lines if name == b"content-length"]
        self.got.append(head + await reader.readexactly(sum(lengths)))
        writer.write(self.says)
        await writer.drain()


class Endless(Raw):
    """A server whose responses do not end."""

    def __init__(self) -> None:
        super().__init__(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.sent = 0
        self.ended = asyncio.Event()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await super()._answer(reader, writer)
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        try:
            while True:
                writer.write(chunk)
                await writer.drain()
                self.sent += len(chunk)
        except ConnectionError:
            self.ended.set()


class Http2Server(Listening):
    """An HTTP/2 server that allows `limit` streams per connection; it ends each response, except that to a watch."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.streams: list[int] = []
        """The number of streams on each connection."""
        self.bodies: dict[tuple[int, int], bytes] = {}
        """The body of each request, by connection and stream."""
        self.is_silent = False
        """True to accept requests without responding."""
        self.refuses = False
        """True to return requests unprocessed."""
        self.reads = True
        """True to send window updates for request bodies."""
        self.sent = 0
        """Bytes sent by `tell_much`."""
        self.resets: set[tuple[int, int]] = set()
        """The streams that clients have reset, by connection and stream."""
        self._much: dict[tuple[int, int], int] = {}
        """Bytes that `tell_much` has yet to send, by connection and stream."""
        self._open: list[tuple[h2.connection.H2Connection, asyncio.StreamWriter]] = []
        self._changed = asyncio.Event()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        conn.local_settings.max_concurrent_streams = self._limit
        conn.local_settings.acknowledge()
        conn.initiate_connection()
        mine = len(self.streams)
        self.streams.append(0)
        self._open.append((conn, writer))
        while True:
            writer.write(conn.data_to_send())
            data = await reader.read(65536)
            if not data:
                break
            for event in conn.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.streams[mine] += 1
                    self.bodies[mine, event.stream_id] = b""
                    self._answer(conn, event)
                elif isinstance(event, h2.events.StreamReset):
                    self.resets.add((mine, event.stream_id))
                elif isinstance(event, h2.events.DataReceived):
                    self.bodies[mine, event.stream_id] += event.data
                    if self.reads:
                        conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            self._tell_on(mine)
            self._changed.set()
        writer.close()

    def _answer(self, conn: h2.connection.H2Connection, event: h2.events.RequestReceived) -> None:
        if self.refuses:
            conn.reset_stream(event.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
        elif not self.is_silent:
            conn.send_headers(event.stream_id, [(":status", "200")])
            watches = b"watch" in dict(event.headers)[b":path"]
            conn.send_data(event.stream_id, b"server", end_stream=not watches)

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is evaluated whenever bytes arrive."""
        while not wanted():
            self._changed.clear()
            await self._changed.wait()

    def reset(self, which: int, stream: int, error: int) -> None:
        """Reset a stream without a response."""
        conn, writer = self._open[which]
        conn.reset_stream(stream, error)
        writer.write(conn.data_to_send())

    def say_farewell(self, which: int, last_stream: int, error: int = 0) -> None:
        """Send GOAWAY on a connection whose open streams continue; h2 itself does not support this."""
        frame = GoAwayFrame(0, last_stream_id=last_stream, error_code=error)
        self._open[which][1].write(frame.serialize())

    def close(self, which: int) -> None:
        self._open[which][1].close()

    def tell_much(self, which: int, stream: int, size: int) -> None:
        """Send this many bytes of a watch, as far as the window allows, and the rest as it opens."""
        self._much[which, stream] = size
        self._tell_on(which)

    def _tell_on(self, which: int) -> None:
        conn, writer = self._open[which]
        for key in self._much:
            is_open = key[0] == which and key[1] in conn.streams and not conn.streams[key[1]].closed
            while is_open and self._much[key] and (window := conn.local_flow_control_window(key[1])):
                size = min(self._much[key], window, conn.max_outbound_frame_size)
                conn.send_data(key[1], bytes(size))
                self.sent += size
                self._much[key] -= size
        writer.write(conn.data_to_send())

    def tell(self, which: int, stream: int, data: bytes) -> None:
        """Send more of a watch."""
        conn, writer = self._open[which]
        conn.send_data(stream, data)
        writer.write(conn.data_to_send())


async def settled(sent: Endless | Http2Server) -> int:
    """Wait until a server cannot send more; return the number of bytes that it has sent."""
    before = -1
    while sent.sent != before:
        before = sent.sent
        await asyncio.sleep(0.3)
    return before


class Handler(Accepted):
    """A client connection, HTTP/1.1 or HTTP/2, without TLS."""

    def __init__(self, proxy: Proxy[Any], is_h2: bool) -> None:
        super().__init__(mode_specs.ProxyMode.parse("regular"), Listener.PLAIN)
        self._is_h2 = is_h2
        self.ended = asyncio.Event()
        proxy.handlers.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.client.alpn = b"h2" if self._is_h2 else b"http/1.1"

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.ended.set()

    @property
    def unwritten(self) -> int:
        assert self.served is not None
        return self.served.unwritten


class Straight:
    """The hub's own connections to a server, as `addons.requests.request_context.ServerConnections`."""

    scheme, host = "http", "127.0.0.1"

    def __init__(self, server: Callable[[], Listening]) -> None:
        self._server = server
        self.pool: ConnectionPool[str] = ConnectionPool(self._connect)

    @property
    def port(self) -> int:
        return self._server().port

    def available(self) -> Connection | None:
        return self.pool.available("")

    async def opened(self) -> Connection:
        return await self.pool.acquire("")

    async def _connect(self, _key: str) -> Connection:
        made = Http2Connection() if isinstance(self._server(), Http2Server) else Http1Connection()
        await asyncio.get_running_loop().create_connection(lambda: made, self.host, self.port)
        return made


class Proxy[Server: Raw | Http2Server]:
    """Relay each request to `server`, and one that fails over to `node`. Hooks are plain functions of the test."""

    def __init__(self, server: Server, node: Raw) -> None:
        self.server, self.node = server, node
        self.to_server, self.to_node = Straight(lambda: self.server), Straight(lambda: self.node)
        self.handlers: list[Handler] = []
        self.hooks: list[str] = []
        """The names of the flow's hooks, in order."""
        self.failover: Callable[[http.HTTPFlow], None] | None = self.lead_to_node
        self.stream_too_large: Callable[[bytes], bytes] | None = None
        self.is_streamed = False
        self.is_request_streamed = False
        self.hook_delay = 0.0
        """Seconds that the addons take for each hook."""
        self.decide: Callable[[http.HTTPFlow], None] | None = None
        """The addon's hook for a request whose headers have arrived."""
        self.thinks: dict[str, tuple[asyncio.Event, asyncio.Event]] = {}
        """By hook: an event that is set when an addon is in the hook, and an event that releases it."""
        self.port = 0
        ctx.master.addons.handle_lifecycle = self.handle_hook  # type: ignore[method-assign,assignment]  # of this test's master

    @property
    def layer(self) -> ClientConnection:
        """Return the layer of the first connection."""
        served = self.handlers[0].served
        assert served is not None
        return served

    def lead_to_node(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        assert context is not None
        lead(context, self.to_node)

    def held_at(self, name: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Block each request in this hook; return the event set at its start, and the event that releases it."""
        self.thinks[name] = asyncio.Event(), asyncio.Event()
        return self.thinks[name]

    async def handle_hook(self, hook: hooks.Hook) -> None:
        if self.hook_delay:
            await asyncio.sleep(self.hook_delay)
        if hook.name in self.thinks:
            begun, goes_on = self.thinks[hook.name]
            begun.set()
            await goes_on.wait()
        self.hook(hook)

    def hook(self, hook: hooks.Hook) -> None:
        (found,) = hook.args()
        if not isinstance(found, http.HTTPFlow):
            return
        self.hooks.append(hook.name)
        if hook.name == "requestheaders" and found.response is None:
            made = request_context(found.request.path, method=found.request.method)
            made.failover, made.stream_too_large = self.failover, self.stream_too_large
            begin(found, made)
            lead(made, self.to_server)
            found.request.stream = self.is_request_streamed
            if self.decide is not None:
                self.decide(found)
        elif hook.name == "responseheaders" and self.is_streamed and found.response is not None:
            found.response.stream = True

    @asynccontextmanager
    async def serve(self, *, is_h2: bool = False) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server.serve())
            await stack.enter_async_context(self.node.serve())
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Handler(self, is_h2), "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            opened: list[Handler] = self.handlers
            try:
                yield
            finally:
                server.close()
                self.to_server.pool.close()
                self.to_node.pool.close()
            for handler in opened:
                await handler.ended.wait()
            serving = [task for task in asyncio.all_tasks() if task.get_name() == "request"]
            await asyncio.gather(*serving)

    async def ask(self, request: bytes) -> bytes:
        """Send a request; return all bytes until the connection closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            answer = await reader.read()
        finally:
            writer.close()  # the proxy waits for this event, even after a failed test
        await writer.wait_closed()
        return answer


@contextmanager
def holding_proxy(says: bytes = ANSWER) -> Iterator[Proxy[Raw]]:
    """Serve a proxy for an HTTP/1.1 server that sends these bytes for each request."""
    with taddons.context(Proxyserver()):
        yield Proxy(Raw(says), Raw(FROM_NODE))


@contextmanager
def watching_proxy() -> Iterator[Proxy[Raw]]:
    """Serve a proxy for an HTTP/1.1 server that sends the start of a watch, and keeps its connection open."""
    with taddons.context(Proxyserver()):
        made = Proxy(Raw(WATCH, available=True), Raw(FROM_NODE))
        made.is_streamed, made.failover = True, None
        yield made


def held_bodies() -> int:
    """Return the bytes of request bodies that the hub buffers."""
    return sum(each.bodies.size for each in listeners.values())
