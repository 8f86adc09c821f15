"""Ends a connection in whole, whenever its task is cancelled, and lets go of what the connection held.

mitmproxy closes a connection by cancelling its task, and delivers each event under a lock. A cancellation that arrives
while the task waits for that lock ends the task at once: the socket stays open, and neither a layer nor an addon learns
of the end.

mitmproxy's layers refer to each other and to methods of their own. Such cycles would stay until a full garbage
collection, which counts objects and not what OpenSSL holds for them: a burst of connections kept tens of megabytes.
"""

from __future__ import annotations

import asyncio
import time
from traceback import clear_frames

import mitmproxy_rs
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.flow import Error
from mitmproxy.proxy import events
from mitmproxy.proxy.commands import OpenConnection
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._hooks import (
    HttpErrorHook,
    HttpRequestHeadersHook,
    HttpRequestHook,
    HttpResponseHeadersHook,
)
from mitmproxy.proxy.server import LiveConnectionHandler
from mitmproxy.proxy.server_hooks import ServerConnectionHookData, ServerDisconnectedHook

from addons.proxy.http.http_layer import layer_of
from addons.proxy.http.request_stream import RequestStream
from addons.proxy.http.upstream_connections import take_apart

BEFORE_END = (HttpRequestHeadersHook, HttpRequestHook, HttpResponseHeadersHook)
"""The hooks of a flow after which `response` or `error` follows."""

type Writer = asyncio.StreamWriter | mitmproxy_rs.Stream


class EndingHandler(LiveConnectionHandler):
    """A connection handler that closes what mitmproxy left open, and takes apart what it left whole."""

    async def handle_client(self) -> None:
        try:
            await super().handle_client()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self.timeout_watchdog.callback = _nothing
        layers = layers_below(self.layer)
        http_layer = layer_of(self.client.id)
        if http_layer is not None:
            http_layer.let_go()
        for each in layers:
            if isinstance(each, RequestStream):
                each.let_go()
        # Addons may still work on the last hooks, and other events wait for their turn.
        self.layer = EndedLayer(self.layer.context)
        take_apart([*layers, self.layer])

    async def open_connection(self, command: OpenConnection) -> None:
        try:
            await super().open_connection(command)
        finally:
            transport = self.transports.get(command.connection)
            if transport is not None:
                # One more cancellation must not keep the addons or the layer from learning of the end, as below.
                await asyncio.shield(asyncio.ensure_future(self._end_unused(command, transport.writer)))

    async def _end_unused(self, command: OpenConnection, writer: Writer | None) -> None:
        """End a connection that could not be opened, or whose opening was cancelled, and tell the layer once.

        mitmproxy itself keeps a connection that could not be opened until the client leaves.
        """
        ended = command.connection
        del self.transports[ended]
        if writer is not None:
            ended.state = ConnectionState.CLOSED
            ended.timestamp_end = time.time()
            writer.close()
            await self.handle_hook(
                ServerDisconnectedHook(ServerConnectionHookData(server=ended, client=self.client))
            )
        http_layer = layer_of(self.client.id)
        if http_layer is not None and command in http_layer.command_sources:
            ended.error = ended.error or "the connection was cancelled"
            await self.server_event(events.OpenConnectionCompleted(command, ended.error))

    async def handle_connection(self, connection: Connection) -> None:
        ended = self.transports[connection]
        try:
            await super().handle_connection(connection)
        except asyncio.CancelledError as error:
            # mitmproxy's frame keeps the exception, which keeps the frame, and so the buffers of the socket.
            clear_frames(error.__traceback__)
            raise
        finally:
            transport = self.transports.pop(connection, None)
            if transport is not None:
                connection.state = ConnectionState.CLOSED
                if transport.writer is not None:
                    transport.writer.close()
                # One more cancellation must not keep the layers from learning of the end.
                await asyncio.shield(
                    asyncio.ensure_future(self.server_event(events.ConnectionClosed(connection)))
                )
            ended.handler = None  # The task keeps the exception, whose frames keep this.


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
    found: dict[int, Layer] = {}
    waiting = [top]
    while waiting:
        each = waiting.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        waiting += each.context.layers
        waiting += (value for value in vars(each).values() if isinstance(value, Layer))
        if isinstance(each, HttpLayer):
            waiting += [*each.streams.values(), *each.connections.values()]
    return list(found.values())


async def _nothing() -> None:
    """What a watchdog calls whose connection has ended."""
