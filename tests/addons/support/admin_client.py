"""A client for the admin port of a hub."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from addons.link.drills import Drills
from addons.ui.admin import admin_server
from addons.ui.admin_port import AdminPort
from addons.ui.admin_server import AdminServer
from addons.ui.attached.attachments import Attachments
from addons.ui.page.timeline import Timeline
from addons.ui.running_hub import RunningHub
from tests.cloud.ports import free_port


class AdminClient:
    def __init__(self, server: AdminServer, hub: RunningHub, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session
        listen = hub.settings.listen
        self.url = f"http://{f'[{listen}]' if ':' in listen else listen}:{hub.settings.admin_port}"

    async def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        """Return code and text; post `body` if given."""
        method, data = ("GET", None) if body is None else ("POST", io.BytesIO(body))
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            return answer.status, await answer.text(errors="replace")

    async def json(self, path: str, body: bytes | None = None) -> Any:
        method, headers = ("GET" if body is None else "POST"), {"Accept": "application/json"}
        async with self.session.request(method, self.url + path, data=body, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            return await answer.json()


@asynccontextmanager
async def served(hub: RunningHub, attachments: Attachments | None = None) -> AsyncIterator[AdminClient]:
    """Serve a hub's admin port on a free port; yield a client of it."""
    hub = replace(hub, settings=replace(hub.settings, admin_port=free_port()))
    port = AdminPort(hub.settings)
    attachments = attachments or Attachments(lambda: hub.settings, Drills())
    server = admin_server(hub, attachments, Timeline(hub))
    await server.start(port.socket)
    try:
        async with aiohttp.ClientSession() as session:
            yield AdminClient(server, hub, session)
    finally:
        server.close()
