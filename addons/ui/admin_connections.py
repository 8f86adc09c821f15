"""Opens the admin port, with a bound on its connections, and without a stack trace for each malformed request."""

from __future__ import annotations

import asyncio
import logging
import socket

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from addons.telemetry import metrics

MAX_CONNECTIONS = 64
"""Connections of pages, commands, probes and scrapes together; a browser opens six."""

logger = logging.getLogger(__name__)


async def serve(app: web.Application, listening: socket.socket) -> None:
    """Serve the application's requests. Beyond MAX_CONNECTIONS the oldest is closed: a probe always gets in."""
    runner = web.AppRunner(app, access_log=None, logger=logger)
    await runner.setup()
    server = runner.server
    assert server is not None

    def accept() -> asyncio.BaseProtocol:
        if len(server.connections) >= MAX_CONNECTIONS:
            metrics.CONNECTIONS_REFUSED.labels("admin").inc()
            oldest = server.connections[0]
            if oldest.transport is not None:
                oldest.transport.abort()
        return server()

    await asyncio.get_running_loop().create_server(accept, sock=listening, backlog=128)


class _FaultsOfTheHub(logging.Filter):
    """Keeps aiohttp's line about a malformed request out of the log: the answer tells its sender."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logger.addFilter(_FaultsOfTheHub())
