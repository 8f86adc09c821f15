"""The way to the cloud that the peer port lends: the CONNECT of another hub, and what passes after it.

Only the first thing that a connection says can ask for a way, by HTTP/1.1. A CONNECT elsewhere is refused as malformed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mitmproxy import connection
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.commands import StartHook
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode

from addons.proxy.handlers.hub_handler import handler_of
from addons.proxy.http.error_responses import error_response
from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.messages import request_of_lines
from addons.proxy.http.request_head import headers_too_large
from addons.requests.answers import ClientLeft
from addons.telemetry import metrics
from kube.errors import StatusError, bad_request
from kube.http.proxies import END

METHOD = b"CONNECT "
MAX_HEAD = 8 * 1024
"""Bytes of the head of a CONNECT: a borrower sends a hundred."""
OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"

logger = logging.getLogger(__name__)

_open: WeakValueDictionary[str, Carrying] = WeakValueDictionary()
"""Those that lead to a server, by the client's id."""


class Lent(Protocol):
    """The way that a connection of the peer port is lent."""

    async def open(self, end: asyncio.Protocol) -> None:
        """Give a connection to the server to this protocol; OSError where there is none."""

    @property
    def pace(self) -> Callable[[str, int], Awaitable[None]]:
        """Returns when so many bytes may go on. The direction is up, to the cloud, or down."""


@dataclass(slots=True)
class AskedWay:
    """What a hub asks for, and what it gets: a way, or a refusal."""

    client: connection.Client
    headers: tuple[tuple[str, str], ...]
    host: str
    port: int
    lent: Lent | None = None
    refusal: StatusError | None = None


@dataclass(slots=True)
class ServerSaid(events.Event):
    """What goes to the client of a lent way."""

    data: bytes
    is_last: bool


@dataclass
class LendWayHook(StartHook):
    """Another hub of the pool asks for a way to the cloud."""

    asked: AskedWay


def is_open(client_id: str) -> bool:
    """Whether a connection of the peer port leads to a server."""
    return client_id in _open


class PeerLayer(layer.Layer):
    """The first layer within the TLS of the peer port: lends a way where a CONNECT comes first, else serves HTTP."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._head = b""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.ConnectionClosed):
            yield commands.CloseConnection(self.context.client)
        elif isinstance(event, events.DataReceived):
            self._head += event.data
            if not self._head.startswith(METHOD):
                if not METHOD.startswith(self._head):
                    yield from self._go_on_as(HubHttpLayer(self.context, HTTPMode.transparent))
            elif END in self._head or len(self._head) > MAX_HEAD:
                yield from self._lend()

    def _go_on_as(self, beyond: layer.Layer) -> layer.CommandGenerator[None]:
        self._handle_event = beyond.handle_event  # type: ignore[method-assign]  # as mitmproxy's own first layers
        yield from beyond.handle_event(events.Start())
        if isinstance(beyond, HubHttpLayer):
            yield from beyond.handle_event(events.DataReceived(self.context.client, self._head))

    def _lend(self) -> layer.CommandGenerator[None]:
        try:
            asked = _parse(self.context.client, self._head)
        except StatusError as error:
            metrics.REQUESTS_REFUSED.labels(str(error.code)).inc()
            yield from refuse(self.context.client, error)
            return
        yield LendWayHook(asked)
        if asked.lent is None:
            assert asked.refusal is not None
            yield from refuse(self.context.client, asked.refusal)
            return
        yield from self._go_on_as(Carrying(self.context, asked.lent))


class Carrying(layer.Layer):
    """Hands on what either side says. One that ends ends both."""

    def __init__(self, context: Context, lent: Lent) -> None:
        super().__init__(context)
        self._end = ServerEnd(lent, handler_of(context.client.id))

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        client = self.context.client
        if isinstance(event, events.Start):
            self._end.begin()
        elif isinstance(event, ServerSaid):
            if event.data:
                yield commands.SendData(client, event.data)
            if event.is_last:
                yield commands.CloseConnection(client)
            else:
                _open[client.id] = self
        elif isinstance(event, events.DataReceived):
            self._end.send(event.data)
        elif isinstance(event, events.ConnectionClosed):
            self._end.close()
            yield commands.CloseConnection(client)


class Borrower(Protocol):
    """The handler of the connection of the peer port."""

    is_full: Callable[[], bool]

    async def server_event(self, event: events.Event) -> None:
        """Have the layers handle an event."""

    async def drained(self) -> None:
        """Return when the client's socket has room; ClientLeft when the client has left."""

    def server_has_room(self) -> None:
        """Read on from the client."""


class ServerEnd(asyncio.Protocol):
    """The connection to the server of a lent way. Of each side no more waits here than was read at once: there is no
    further reading before that has gone on, at the pace of the way."""

    def __init__(self, lent: Lent, borrower: Borrower | None) -> None:
        assert borrower is not None, "who asks is there"
        self._lent = lent
        self._borrower = borrower
        self._transport: asyncio.Transport | None = None
        self._to_server = deque[bytes]()
        self._to_client = deque[bytes]()
        self._writable = asyncio.Event()
        self._writable.set()
        self._up: asyncio.Task[None] | None = None
        """Opens the connection; later, sends what the client has said."""
        self._down: asyncio.Task[None] | None = None
        """Sends what the server has said."""
        self._has_ended = False

    def begin(self) -> None:
        """Open the connection, and read nothing from the client before it is open."""
        self._borrower.is_full = lambda: self._up is not None
        self._up = _later(self._open(), "opens a lent way")

    def send(self, data: bytes) -> None:
        """Take what the client has said."""
        self._to_server.append(data)
        if self._up is None:
            self._up = _later(self._carry_up(), "carries to a server")

    def close(self) -> None:
        """The client has left."""
        self._has_ended = True
        for task in (self._up, self._down):
            if task is not None:
                task.cancel()
        if self._transport is not None:
            self._transport.close()

    # -- the protocol of the server's connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._has_ended or self._transport is None:
            return
        self._transport.pause_reading()
        self._to_client.append(data)
        self._hand_down()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        if not self._has_ended:
            self._has_ended = True
            self._hand_down()

    def _hand_down(self) -> None:
        if self._down is None:
            self._down = _later(self._carry_down(), "carries to a borrower")

    # -- what carries

    async def _open(self) -> None:
        why = ""
        try:
            await self._lent.open(self)
        except OSError as error:
            why = str(error) or type(error).__name__
        except Exception:
            logger.exception("a lent way could not be opened")
            why = "the hub could not open a connection"
        self._up = None
        said = (
            ServerSaid(error_response(502, why), is_last=True) if why else ServerSaid(OPENED, is_last=False)
        )
        await self._borrower.server_event(said)

    async def _carry_up(self) -> None:
        while self._to_server and self._transport is not None:
            data = self._to_server.popleft()
            await self._lent.pace("up", len(data))
            self._transport.write(data)
            await self._writable.wait()
        self._up = None
        self._borrower.server_has_room()

    async def _carry_down(self) -> None:
        while self._to_client:
            data = self._to_client.popleft()
            await self._lent.pace("down", len(data))
            await self._borrower.server_event(ServerSaid(data, is_last=False))
            try:
                await self._borrower.drained()
            except ClientLeft:
                return  # its layers learn of it
        self._down = None
        if self._has_ended:
            await self._borrower.server_event(ServerSaid(b"", is_last=True))
        elif self._transport is not None:
            self._transport.resume_reading()


def _later(carrying: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """A task that does not begin at once, as mitmproxy's do: the layers are at work."""
    return asyncio.Task(carrying, loop=asyncio.get_running_loop(), name=name, eager_start=False)


def refuse(client: connection.Client, error: StatusError) -> layer.CommandGenerator[None]:
    """Answer with a Status, and hear no more."""
    yield commands.SendData(client, error_response(error.code, error.message))
    yield commands.CloseConnection(client)


def _parse(client: connection.Client, head: bytes) -> AskedWay:
    """StatusError 400 or 431 for anything but the head of a CONNECT, and nothing behind it."""
    head, end, rest = head.partition(END)
    if not end or len(head) > MAX_HEAD:
        raise headers_too_large()
    try:
        request = request_of_lines(head.split(b"\r\n"))
    except ValueError as error:
        raise bad_request(f"the head of the request is malformed: {error}") from None
    if rest or request.http_version != "HTTP/1.1" or not request.port:
        raise bad_request(
            "a CONNECT is of HTTP/1.1, for a host and a port, and nothing follows before its answer"
        )
    headers = tuple((name, value) for name, value in request.headers.items(multi=True))
    return AskedWay(client, headers, request.host.lower(), request.port)
