"""Serves the admin port by the hub's own HTTP/1.1 server, without flows: addons do not see these requests."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, aclosing, suppress
from email.utils import formatdate

from mitmproxy import connection
from mitmproxy.connection import ConnectionState

from addons.requests.answers import Answer, ClientLeft, status_answer
from addons.server.clients.client_connection import MAX_READ, ClientConnection
from addons.server.clients.http1_client import Http1
from addons.server.limits.client_addresses import STREAM_UNREAD
from addons.server.request import AnswerFields, ServedRequest
from addons.server.respond import in_pieces, send_long
from addons.server.serve import fault_of_request
from addons.telemetry import metrics
from addons.telemetry.background import background
from addons.ui.handlers import (
    NOT_STORED,
    AdminHub,
    AdminPage,
    AdminRequest,
    AdminResponse,
    Streamed,
    text_answer,
)
from kube.errors import StatusError, internal
from kube.http.browser_check import OwnAddress, refuse_web_pages

MAX_CONNECTIONS = 64
"""Maximum connections of probes, scrapers and browsers together; a browser opens six."""
KEEP_ALIVE = 75.0
"""Seconds that a connection may be idle before a request, or take to send its head."""
SWEEP = 5.0
"""Seconds between checks for connections that exceed KEEP_ALIVE."""

type Routes = Mapping[re.Pattern[str], Mapping[str, AdminPage]]
"""The handlers of each path, by method."""

logger = logging.getLogger(__name__)


class AdminServer:
    """Serves from `start` to `close`. At MAX_CONNECTIONS each new connection evicts another, so probes are always
    served.

    The evicted connection is the one that has been idle longest. A connection with a running request is evicted only if
    all have one.
    """

    def __init__(self, asked: AdminHub, routes: Routes) -> None:
        self._asked, self._routes = asked, routes
        self._since: dict[ClientConnection, float] = {}
        """Monotonic time since when each connection has been idle."""
        self._made = ExitStack()

    async def start(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Accepted(self), sock=listening)
        self._made.callback(server.close)
        self._made.callback(background(self._close_idle(), "idle clients of the admin port").cancel)

    def close(self) -> None:
        """Close the listener, idle connections and streams; other running requests are completed."""
        self._asked.closed.set()
        self._close_waiting_since(time.monotonic())
        self._made.close()

    def speak(self, transport: asyncio.BaseTransport) -> None:
        """Serve an accepted connection."""
        if len(self._open()) >= MAX_CONNECTIONS:
            self._evict()
        transport.max_size = MAX_READ  # type: ignore[attr-defined]  # asyncio says so in no other way
        client = connection.Client(
            peername=transport.get_extra_info("peername"),
            sockname=transport.get_extra_info("sockname"),
            timestamp_start=time.time(),
            state=ConnectionState.OPEN,
        )
        served = Http1(client, self._serve)
        self._since[served] = time.monotonic()
        transport.set_protocol(served)
        served.connection_made(transport)

    def _open(self) -> Mapping[ClientConnection, float]:
        self._since = {each: since for each, since in self._since.items() if each.transport is not None}
        return self._since

    def _evict(self) -> None:
        metrics.CONNECTIONS_REFUSED.labels("admin").inc()
        waiting = [each for each in self._since if not _is_answering(each)]
        longest = min(waiting or self._since, key=self._since.__getitem__)
        if longest.transport is not None:
            longest.transport.abort()

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self._close_waiting_since(time.monotonic() - KEEP_ALIVE)

    def _close_waiting_since(self, latest: float) -> None:
        for each, since in self._open().items():
            if since <= latest and not _is_answering(each):
                each.close()

    async def _serve(self, request: ServedRequest) -> None:
        try:
            await self._answer(request)
        except (ClientLeft, asyncio.CancelledError):
            pass
        except Exception:
            logger.exception("a page could not be made")
            if request.has_begun:
                request.abort()
                return
            with suppress(ClientLeft, asyncio.CancelledError):
                await _send(request, status_answer(internal("the hub could not make this page")))
        finally:
            assert isinstance(request.connection, ClientConnection)
            self._since[request.connection] = time.monotonic()

    async def _answer(self, request: ServedRequest) -> None:
        try:
            response = await self._response(request)
            if isinstance(response, Streamed):
                await self._stream(request, response)
                return
        except StatusError as error:
            if request.has_begun:
                raise
            response = status_answer(error)
        await _send(request, response)

    async def _response(self, request: ServedRequest) -> AdminResponse:
        if (fault := fault_of_request(request)) is not None:
            metrics.REQUESTS_REFUSED.labels(str(fault.code)).inc()
            raise fault
        head = request.head
        # A web page open in a browser on this node must not read these pages.
        own = OwnAddress(*request.client.sockname[:2], self._asked.hub.settings.allowed_hosts)
        refuse_web_pages(own, head.authority, head.headers.get_all)
        path = head.path.partition("?")[0]
        for pattern, pages in self._routes.items():
            if (match := pattern.fullmatch(path)) is not None:
                return await self._ask(pages, AdminRequest(self._asked, request, match.groupdict()))
        return text_answer("404: Not Found", status=404)

    async def _ask(self, pages: Mapping[str, AdminPage], request: AdminRequest) -> AdminResponse:
        served = request.served
        method = "GET" if served.is_head else served.head.method
        if method not in pages:
            allowed = sorted({*pages, *(("HEAD",) if "GET" in pages else ())})
            return text_answer("405: Method Not Allowed", status=405, headers={"Allow": ",".join(allowed)})
        if method == "GET":
            return await pages[method](request)
        # A disconnect must not cancel a POST that has begun.
        served.shielded += 1
        try:
            return await pages[method](request)
        finally:
            served.shielded -= 1

    async def _stream(self, request: ServedRequest, response: Streamed) -> None:
        """Send the pieces of a stream until it ends, the client disconnects, or the hub stops."""
        async with aclosing(response.pieces) as pieces:
            async for piece in pieces:
                if not request.has_begun:
                    request.send_head(200, _fields({**NOT_STORED, **response.headers}, request))
                if request.is_head:
                    break
                for part in in_pieces(piece):
                    await request.send(part)
                if self._asked.closed.is_set():
                    break
        request.end()


class _Accepted(asyncio.Protocol):
    """The protocol of a new connection, replaced at once by an `Http1`."""

    def __init__(self, server: AdminServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.speak(transport)


def _is_answering(open_: ClientConnection) -> bool:
    return open_.count > 0 and open_.waits_since is None


async def _send(request: ServedRequest, answer: Answer) -> None:
    body, fields = answer.body, _fields(answer.headers, request)
    assert isinstance(body, bytes)
    if request.is_head or len(body) <= STREAM_UNREAD:
        await request.send_response(answer.status, fields, body)
    else:
        await send_long(request, answer.status, fields, body)


def _fields(headers: Mapping[str, str], request: ServedRequest) -> AnswerFields:
    fields = {**headers, "Date": formatdate(usegmt=True)}
    if request.has_body and not request.inbox.has_ended:
        fields["Connection"] = "close"  # the rest of the body is not read, so no request can follow
    return [(name.encode(), value.encode()) for name, value in fields.items()]
