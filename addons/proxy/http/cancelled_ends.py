"""Ends a connection in whole, whenever its task is cancelled, and lets go of what the connection held.

mitmproxy closes a connection by cancelling its task, and delivers each event under a lock. A cancellation that arrives
while the task waits for that lock ends the task at once: the socket stays open, and no layer learns of the end.

mitmproxy's ended connections are cycles of references: their buffers would stay until a full garbage collection, which
is rare in a process that has much to look at.
"""

from __future__ import annotations

import asyncio
from traceback import clear_frames

from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import events
from mitmproxy.proxy.server import LiveConnectionHandler

from addons.proxy.http.http_layer import layer_of


class WholeEnds(LiveConnectionHandler):
    """A connection handler that closes what mitmproxy left open, and empties what it left full."""

    async def handle_client(self) -> None:
        try:
            await super().handle_client()
        finally:
            layer = layer_of(self.client.id)
            if layer is not None:
                layer.let_go()

    async def handle_connection(self, connection: Connection) -> None:
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
