"""A hub behind a link to the cloud that a test can cut, and requests as sent by a node's component."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.cloud.link import Link
from tests.cloud.rest import Answer
from tests.hub.support.process import Hub

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
NOTICE = 6.0
"""Seconds within which the hub guarantees to detect a black hole."""
STARTED = 60.0
"""Seconds that components may take to start on loaded cores; they need two."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A hub and its link."""

    hub: Hub
    link: Link

    def leave(self) -> None:
        """Refuse connections; return when the hub has detected the outage."""
        self.link.refuse()
        self.hub.wait_for_metric("edgehub_server_up", 0, 20)

    def come_back(self) -> None:
        self.link.carry()
        self.hub.wait_for_metric("edgehub_server_up", 1, 20)

    async def begin(self) -> None:
        await asyncio.to_thread(self.leave)

    async def end(self) -> None:
        await asyncio.to_thread(self.come_back)

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Cut the cloud off during this block."""
        await self.begin()
        try:
            yield
        finally:
            await self.end()

    async def ask(
        self,
        path: str,
        accept: str = JSON,
        component: str = "kubelet",
        *,
        method: str = "GET",
        body: Any = None,
        content_type: str = JSON,
        token: str = "",
    ) -> Answer:
        """Return the response to one request; a body other than bytes is sent as JSON, and a token goes to the TLS
        port."""
        headers = {"Accept": accept, "User-Agent": f"{component}/v1", "Accept-Encoding": "gzip"}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = content_type
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = self.hub.tls_url if token else self.hub.url
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.request(method, url + path, headers=headers, data=data) as answer,
        ):
            return Answer(answer.status, dict(answer.headers), await answer.read())
