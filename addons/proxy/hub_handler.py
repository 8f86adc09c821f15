"""mitmproxy's handler of a client's connection, changed in what it reads and writes, and in how it ends.

mitmproxy handles each event under a lock, and what follows from a hook in a later turn of the loop: a request took four
more turns, and a connection whose task was cancelled while it waited for the lock stayed open. Here all that follows at
once is handled in one go, and goes out in one write.

mitmproxy's layers refer to each other and to methods of their own. Such cycles would stay until a full garbage
collection, which counts objects and not what OpenSSL holds for them: a burst of connections kept tens of megabytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from traceback import clear_frames
from types import MethodType
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.flow import Error, Flow
from mitmproxy.proxy import events
from mitmproxy.proxy.commands import RequestWakeup, StartHook
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._hooks import (
    HttpErrorHook,
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHeadersHook,
)
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from addons.proxy.http.http_layer import layer_of
from addons.proxy.http.own_events import NextTurn
from addons.proxy.http.played_stream import Player, players
from addons.proxy.http.request_stream import RequestStream
from addons.requests.answers import ClientLeft
from addons.requests.exchange.client_addresses import address_of
from addons.requests.exchange.client_socket import MAX_UNWRITTEN, GatheringWriter, PausingReader
from addons.requests.exchange.direct_pieces import DirectPieces

BEFORE_END = (HttpRequestHeadersHook, HttpRequestHook, HttpResponseHeadersHook)
"""The hooks of a flow after which `response` or `error` follows."""


def handler_of(client_id: str) -> HubHandler | None:
    """The handler of a client's connection; None when that has ended."""
    player = players.get(client_id)
    return player if isinstance(player, HubHandler) else None


class HubHandler(ProxyConnectionHandler, Player):
    """Reads while there is room, writes what one event makes the layers write at once, and ends in whole."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)  # type: ignore[no-untyped-call]  # as mitmproxy has it
        self._events: deque[events.Event] = deque()
        """What follows from the event that is being handled."""
        self._is_busy = False
        """An event is being handled."""
        self._hooks: dict[StartHook, asyncio.Task[None]] = {}
        """Those that addons are still handling, until mitmproxy begins to wait for them."""
        self._moved = asyncio.Event()
        """Set at each event: the client may have room for what servers send, or they for what it sends."""
        self.is_full: Callable[[], bool] = bool
        """Whether a lent way has no room for what the client sends."""
        own = self.transports[self.client]
        assert isinstance(own.reader, asyncio.StreamReader)
        assert isinstance(own.writer, asyncio.StreamWriter)
        self._address = address_of(self.client)
        self._reader = PausingReader(own.reader, self._has_no_room, self._moved, self._address)
        self._writer = GatheringWriter(own.writer)
        own.reader = self._reader  # type: ignore[assignment]  # mitmproxy calls nothing but `read`
        own.writer = self._writer  # type: ignore[assignment]  # it has all that mitmproxy calls
        players[self.client.id] = self

    async def handle_client(self) -> None:
        try:
            await super().handle_client()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.timeout_watchdog.callback, self.is_full = _nothing, bool
        self._reader.let_go()
        layers = layers_below(self.layer)
        http_layer = layer_of(self.client.id)
        if http_layer is not None:
            http_layer.let_go()
        for layer in layers:
            if isinstance(layer, RequestStream):
                layer.let_go()
        # Addons may still work on the last hooks.
        self.layer = EndedLayer(self.layer.context)
        take_apart([*layers, self.layer])

    async def handle_connection(self, connection: Connection) -> None:
        ended = self.transports[connection]
        # What this frame named would live as long as the exception that may end the connection.
        try:
            await super().handle_connection(connection)
        except asyncio.CancelledError as error:
            # mitmproxy's frame keeps the exception, which keeps the frame, and so the buffers of the socket.
            clear_frames(error.__traceback__)
            raise
        finally:
            ended.handler = None  # The task keeps the exception, whose frames keep this.

    async def server_event(self, event: events.Event) -> None:
        """Handle an event, without waiting for anything; one that follows from another one, after that."""
        self._events.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._events:
                handled = self._events.popleft()
                await super().server_event(handled)
                self._moved.set()
        finally:
            self._is_busy = False
            self._writer.flush()

    async def wakeup(self, request: RequestWakeup) -> None:
        if isinstance(request, NextTurn):
            await self._address.turn()
        await super().wakeup(request)

    def has_handled(self, hook: StartHook) -> bool:
        handling = asyncio.create_task(self.handle_hook(hook), name=hook.name)
        if handling.done() and not (handling.cancelled() or handling.exception()):
            return True
        self._hooks[hook] = handling
        return False

    async def handle_hook(self, hook: StartHook) -> None:
        """As mitmproxy's own, without what that does at each hook, also where nobody waits for anything."""
        await self.master.addons.handle_lifecycle(hook)
        flow: Flow | None = getattr(hook, "flow", None)
        if flow is not None:
            await flow.wait_for_resume()

    async def hook_task(self, hook: StartHook) -> None:
        handling = self._hooks.pop(hook, None)
        with self.timeout_watchdog.disarm():  # an addon, or a person, may take long
            await (self.handle_hook(hook) if handling is None else handling)
        if hook.blocking:
            await self.server_event(events.HookCompleted(hook))

    async def drained(self) -> None:
        """Return when the client's socket has room. ClientLeft when the client has left."""
        if self.client not in self.transports:
            raise ClientLeft
        self.timeout_watchdog.register_activity()
        try:
            await self._writer.drain()
        except ConnectionError:
            raise ClientLeft from None

    def server_has_room(self) -> None:
        """Read on from the client."""
        self._moved.set()

    def has_room(self, stream: RequestStream) -> bool:
        """Whether the client has read enough of what it was sent before."""
        layer = layer_of(self.client.id)
        if layer is None or self.unwritten > MAX_UNWRITTEN:
            return layer is None
        return stream._paused is None and not layer.is_behind(stream.stream_id)

    async def wait_for_room(self, stream: RequestStream) -> None:
        """Return when it has. ClientLeft when it has left."""
        while not self.has_room(stream):
            if self.unwritten > MAX_UNWRITTEN:
                await self.drained()
            else:
                self._moved.clear()
                await self._moved.wait()

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has no room for."""
        return self._writer.unsent

    def direct(self, stream: RequestStream) -> DirectPieces | None:
        """The short way of the pieces of such a body; None where there is none."""
        layer, noted = layer_of(self.client.id), self.timeout_watchdog.register_activity
        return layer.direct(stream, self._writer.transport, noted) if layer is not None else None

    def _has_no_room(self) -> bool:
        layer = layer_of(self.client.id)
        return self.is_full() or (layer is not None and layer.is_ahead)


def close_client(client_id: str, why: str) -> bool:
    """Close a client's connection; whether there was one."""
    handler = handler_of(client_id)
    transport = handler.transports.get(handler.client) if handler is not None else None
    if transport is None or transport.handler is None:
        return False
    transport.handler.cancel(why)
    return True


async def _nothing() -> None:
    """What a watchdog calls whose connection has ended."""


class EndedLayer(Layer):
    """Takes what comes after the end of a connection, and ends the requests on which addons still worked then.

    The layers that are gone would have called the hook `error` when the addons were done. Without it the hub would keep
    such a flow, and count it as under way, for as long as it runs.
    """

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.HookCompleted) and isinstance(event.command, BEFORE_END):
            flow = event.command.flow
            flow.error, flow.live = flow.error or Error("Client disconnected."), False
            yield HttpErrorHook(flow)


def layers_below(top: Layer) -> list[Layer]:
    """The layer and all that it leads to."""
    layers: dict[int, Layer] = {}
    waiting = [top]
    while waiting:
        layer = waiting.pop()
        if id(layer) in layers:
            continue
        layers[id(layer)] = layer
        waiting += layer.context.layers
        waiting += (value for value in vars(layer).values() if isinstance(value, Layer))
        if isinstance(layer, HttpLayer):
            waiting += [*layer.streams.values(), *layer.connections.values()]
    return list(layers.values())


def take_apart(layers: Iterable[Layer]) -> None:
    """Drop what makes cycles of these layers. No event may reach them from here on."""
    for layer in layers:
        layer._paused = None
        layer._paused_event_queue.clear()
        layer.context.layers.clear()
        for name in [name for name, value in vars(layer).items() if isinstance(value, MethodType)]:
            delattr(layer, name)
