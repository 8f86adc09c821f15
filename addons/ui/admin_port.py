"""The admin port: bound at the start, because a taken one ends it, and served from its first client on.

Its pages take time to load, and no component waits for them.
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
    """Open from the start to `close`."""

    def __init__(self, settings: Settings) -> None:
        """OSError, whose `filename` is the address, when the port cannot be opened."""
        self._made = ExitStack()
        listen, port = settings.listen, settings.admin_port
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        try:
            self.socket = self._made.enter_context(socket.create_server((listen, port), family=family))
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{listen}:{port}") from error

    async def serve(self, hub: RunningHub, attachments: Attachments) -> None:
        """Wait for the first client, then serve it and all others."""
        # The page shows the hours before it is first opened.
        timeline = Timeline(hub)
        self._made.callback(background(timeline.run(), "timeline of the page").cancel)
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.socket, came.set)
        await came.wait()
        loop.remove_reader(self.socket)
        # Components are answered while another thread reads modules and pages.
        server = await asyncio.to_thread(_server_of, hub, attachments, timeline)
        self._made.callback(server.close)
        await server.start(self.socket)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.socket)
        self._made.close()


def _server_of(hub: RunningHub, attachments: Attachments, timeline: Timeline) -> AdminServer:
    from addons.ui.admin import admin_server  # noqa: PLC0415 - not before the first client, as said above

    return admin_server(hub, attachments, timeline)
