"""The HTTP server that views are answered from: in this process, on a loopback port, for redirected flows only."""

from __future__ import annotations

import itertools
import logging
import secrets
import socket
from collections.abc import Mapping
from typing import Protocol

from aiohttp import web

from addons.requests.request_context import TICKET_HEADER, RequestContext
from addons.requests.route_decision import RouteKind
from kube.errors import StatusError, internal

logger = logging.getLogger(__name__)


class OriginHandler(Protocol):
    """What the origin does with requests that go one way."""

    async def answer(self, context: RequestContext, request: web.BaseRequest) -> web.StreamResponse:
        """The whole answer, streams to their end; StatusError where that is the answer."""


class Origin:
    """Hands out tickets, and answers who brings one back."""

    def __init__(self, answerers: Mapping[RouteKind, OriginHandler]) -> None:
        self._answerers = answerers
        self._secret = secrets.token_urlsafe(32)
        self._numbers = itertools.count()
        self._tickets: dict[str, RequestContext] = {}
        self._runner: web.ServerRunner | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    async def start(self) -> None:
        """Begin to serve."""
        server = web.Server(self._answer, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, backlog=1024).start()

    def close(self) -> None:
        self._socket.close()

    def ticket(self, context: RequestContext) -> str:
        """Let one request in, for this exchange. Give the ticket back with `void` if it never comes."""
        ticket = f"{self._secret}-{next(self._numbers)}"
        self._tickets[ticket] = context
        return ticket

    def void(self, ticket: str) -> None:
        self._tickets.pop(ticket, None)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        context = self._tickets.pop(request.headers.get(TICKET_HEADER, ""), None)
        if context is None:
            return web.Response(status=403, text="this port is the hub's own\n")
        try:
            assert context.route is not None
            return await self._answerers[context.route.kind].answer(context, request)
        except StatusError as error:
            return status_response(error)
        except Exception:
            logger.exception("a view could not be served")
            return status_response(internal("the hub could not serve this view"))


def status_response(error: StatusError) -> web.Response:
    """A Status as the whole answer."""
    headers = {"Cache-Control": "no-cache, private"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    return web.Response(
        status=error.code, body=error.to_json(), content_type="application/json", headers=headers
    )
