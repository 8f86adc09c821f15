"""The HTTP server that views are answered from: in this process, on a loopback port, for redirected flows only."""

from __future__ import annotations

import itertools
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Container

from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError  # aiohttp's client stays out of the process

from addons.requests.headers import TICKET_HEADER
from addons.views.responses import status_response
from kube.errors import StatusError, internal

logger = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""The status of a request whose client left while something was written to it. It reaches nobody."""

LARGEST_HEAD = 128 * 1024
"""Bytes of a line, and header lines: more than any request has that mitmproxy sends on."""

type Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers one request: the whole answer, or a stream to its end. StatusError where that is the answer."""


class Origin:
    """Hands out tickets, and answers each request that brings one back."""

    def __init__(self, taken: Container[int] = ()) -> None:
        """`taken` are the hub's own ports: mitmproxy sends nothing to a number at which it listens, on any address."""
        self._secret = secrets.token_urlsafe(32)
        self._numbers = itertools.count()
        self._tickets: dict[str, Answer] = {}
        self._runner: web.ServerRunner | None = None
        self._socket = _listen(taken)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    async def start(self) -> None:
        """Begin to serve."""
        # A body goes on, or is refused, as it came: kube-apiserver takes no packed body, and 3 MiB may unpack to 3 GB.
        # The head of a request was bounded at the door, and is no longer than a proxy may make it.
        server = web.Server(
            self._answer,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            max_line_size=LARGEST_HEAD,
            max_field_size=LARGEST_HEAD,
            max_headers=LARGEST_HEAD,
        )
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket, backlog=1024).start()

    def close(self) -> None:
        self._socket.close()

    def ticket(self, answer: Answer) -> str:
        """Let one request in, which `answer` answers. Give the ticket back with `void` when the request has ended."""
        ticket = f"{self._secret}-{next(self._numbers)}"
        self._tickets[ticket] = answer
        return ticket

    def void(self, ticket: str) -> bool:
        """Take a ticket back; whether its request never came."""
        return self._tickets.pop(ticket, None) is not None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = self._tickets.pop(request.headers.get(TICKET_HEADER, ""), None)
        if answer is None:
            return web.Response(status=403, text="this port is the hub's own\n")
        try:
            return await answer(request)
        except StatusError as error:
            return status_response(error)
        except ClientConnectionResetError:
            return web.Response(status=CLIENT_LEFT)
        except Exception:
            logger.exception("a view could not be served")
            return status_response(internal("the hub could not serve this view"))


def _listen(taken: Container[int]) -> socket.socket:
    """A socket on a free port that is none of those."""
    found = socket.create_server(("127.0.0.1", 0))
    if found.getsockname()[1] not in taken:
        return found
    with found:  # it is held meanwhile, or it might be found again
        return _listen(taken)
