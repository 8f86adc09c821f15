"""Ends a connection in whole, whenever its task is cancelled.

mitmproxy closes a connection by cancelling its task, and delivers each event under a lock. A cancellation that arrives
while the task waits for that lock ends the task at once: the socket stays open, and no layer learns of the end.
"""

from __future__ import annotations

import asyncio

from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import events
from mitmproxy.proxy.server import LiveConnectionHandler


class WholeEnds(LiveConnectionHandler):
    """A connection handler that closes what mitmproxy left open."""

    async def handle_connection(self, connection: Connection) -> None:
        try:
            await super().handle_connection(connection)
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
