"""The admin port: bound at start, so that a port in use ends the process, and served once the first client connects.

Its pages take time to import, and no component needs them.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from addons.settings import Settings
from addons.telemetry.background import background
from addons.ui.attached.attachments import Attachments
from addons.ui.page.timeline import Timeline
from addons.ui.running_hub import RunningHub

if TYPE_CHECKING:
    from addons.ui.admin_server import AdminServer


class AdminPort:
    """The admin port's socket, open until `close`, and its server."""

    def __init__(self, settings: Settings) -> None:
        """Open the port. OSError, with the address as `filename`, if that fails."""
        self._made = ExitStack()
        listen, port = settings.listen, settings.admin_port
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        try:
            self.socket = self._made.enter_context(socket.create_server((listen, port), family=family))
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{listen}:{port}") from error

    async def serve(self, hub: RunningHub, attachments: Attachments) -> None:
        """Wait for the first client, then serve it and all others."""
        # The timeline must record before the page is first opened.
        timeline = Timeline(hub)
        self._made.callback(background(timeline.run(), "timeline of the page").cancel)
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.socket, came.set)
        await came.wait()
        loop.remove_reader(self.socket)
        # Imported in a thread, so that components are answered meanwhile.
        server = await asyncio.to_thread(_server_of, hub, attachments, timeline)
        self._made.callback(server.close)
        await server.start(self.socket)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.socket)
        self._made.close()


def _server_of(hub: RunningHub, attachments: Attachments, timeline: Timeline) -> AdminServer:
    from addons.ui.admin import admin_server  # noqa: PLC0415 - not before the first client, as said above

    return admin_server(hub, attachments, timeline)
