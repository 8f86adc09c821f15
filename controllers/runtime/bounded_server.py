"""Serves an aiohttp application with bounds on its connections, including unfinished handshakes."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

MAX_CONNECTIONS = 64
"""Connections to one server, of probes, scrapes, people and API servers together; a browser opens six."""
HANDSHAKE = 30.0
"""Seconds in which a client must complete the TLS handshake."""
KEEP_ALIVE = 75.0
"""Seconds that a connection may be idle between two requests."""
READ_AHEAD = 64 * 1024
"""Bytes of a request's body that are buffered before the handler reads them."""
CLIENT_LEFT = 499
"""The status in the handler of a request whose client disconnected. It is never sent."""
PAUSE = 1.0
"""Seconds until the next accept after no file descriptor was free."""

logger = logging.getLogger(__name__)


class BoundedServer:
    """Serves from `start` to `finish`. Beyond MAX_CONNECTIONS it closes one connection, so that a probe always gets in.

    It closes the connection that has waited longest for its client's handshake or request; one with an unanswered
    request only if all others have one too.
    """

    def __init__(
        self,
        app: web.Application,
        refused: Callable[[], None],
        *,
        context: ssl.SSLContext | None = None,
        **limits: Any,
    ) -> None:
        """`refused` is called for each connection that is closed. With a `context` the server speaks TLS.

        `limits` are for aiohttp, such as `shutdown_timeout`: seconds that requests may still take after `finish`.
        """
        app.middlewares.append(self._note)
        self._refused = refused
        self._context = context
        self._opening: dict[asyncio.Task[None], float] = {}
        self._since: dict[web.RequestHandler, float] = {}
        """When each connection began to wait for a request, approximately."""
        self._answering: set[web.RequestHandler] = set()
        self._accepting: list[asyncio.Task[None]] = []
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=logger,
            keepalive_timeout=KEEP_ALIVE,
            read_bufsize=READ_AHEAD,
            # A compression bomb would unpack beyond every bound on the body.
            auto_decompress=False,
            **limits,
        )

    async def start(self, listening: Iterable[socket.socket]) -> None:
        await self._runner.setup()
        for listener in listening:
            listener.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listener), name="accepts connections"))

    def refuse_more(self) -> None:
        """Stop accepting connections; open ones stay."""
        for task in self._accepting:
            task.cancel()

    async def finish(self) -> None:
        """Stop accepting, let requests end within the shutdown timeout, then abort the others."""
        self.refuse_more()
        await self._runner.cleanup()
        for task in self._opening:
            task.cancel()
        for connection in self._connections():
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                logger.error("no connection can be accepted: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            self._evict_if_full()
            task = asyncio.create_task(self._open(connection), name="opens a connection")
            self._opening[task] = loop.time()
            task.add_done_callback(self._opening.pop)

    async def _open(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        assert self._runner.server is not None
        with suppress(OSError):  # the client speaks no TLS, or has gone
            async with asyncio.timeout(HANDSHAKE):
                await loop.connect_accepted_socket(self._runner.server, connection, ssl=self._context)

    def _connections(self) -> list[web.RequestHandler]:
        """Return the connections that are not closing."""
        connections = self._runner.server.connections if self._runner.server is not None else ()
        return [
            connection
            for connection in connections
            if connection.transport is not None and not connection.transport.is_closing()
        ]

    def _evict_if_full(self) -> None:
        now = asyncio.get_running_loop().time()
        self._since = {connection: self._since.get(connection, now) for connection in self._connections()}
        if len(self._opening) + len(self._since) < MAX_CONNECTIONS:
            return
        self._refused()
        idle = {
            connection: since
            for connection, since in self._since.items()
            if connection not in self._answering
        }
        waiting: dict[Any, float] = {**self._opening, **idle} or {**self._since}
        longest = min(waiting, key=waiting.__getitem__)
        if isinstance(longest, asyncio.Task):
            longest.cancel()
        elif longest.transport is not None:
            longest.transport.abort()

    @web.middleware
    async def _note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record the connection as busy while its request is answered."""
        self._answering.add(request.protocol)
        try:
            return await handler(request)
        except ConnectionError:
            if request.transport is None or request.transport.is_closing():
                # aiohttp would log a stack trace for each that leaves.
                return web.Response(status=CLIENT_LEFT)
            raise
        finally:
            self._answering.discard(request.protocol)
            self._since[request.protocol] = asyncio.get_running_loop().time()


class _FaultsOfTheServer(logging.Filter):
    """Drops aiohttp's log record about a malformed request: the response already tells the client."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logger.addFilter(_FaultsOfTheServer())


async def listen(host: str, port: int) -> list[socket.socket]:
    """Open sockets that listen on an address; without a `host`, on all addresses. OSError if the port is taken."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    try:
        for family, _, _, _, address in addresses:
            try:
                made = socket.socket(family, socket.SOCK_STREAM)
            except OSError:
                continue  # the system has no sockets of this family
            listening.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            made.listen(128)
    except OSError:
        for listener in listening:
            listener.close()
        raise
    return listening
