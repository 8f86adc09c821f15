"""Replays a flow's request as if it came to its former listener again. Only a person reads the answer."""

from __future__ import annotations

from mitmproxy import http

from addons.server.clients.client_connection import ClientConnection
from addons.server.request import AnswerFields, ServedRequest
from addons.server.serve import serve


class NoSocket(ClientConnection):
    """The connection of a replay."""

    waits_since = None
    requests = ()

    def handle(self) -> bool:
        return False

    def over(self, request: ServedRequest) -> None:
        """Return: no request follows."""


class ReplayedRequest(ServedRequest):
    """A complete request. Its flow gets the answer."""

    def __init__(self, flow: http.HTTPFlow) -> None:
        super().__init__(NoSocket(flow.client_conn, serve), flow.request, has_body=False)
        self.flow = flow

    def check(self) -> None:
        """Return: no client leaves."""

    async def read(self) -> bytes:
        return b""

    def send_head(self, status: int, fields: AnswerFields) -> None:
        self.has_begun = True

    def can_send(self, size: int) -> bool:
        return True

    def send_now(self, data: bytes) -> None:
        """Drop it."""

    async def send(self, data: bytes) -> None:
        """Drop it."""

    async def writable(self) -> None:
        """Whether there is space."""

    def end(self, trailers: AnswerFields = ()) -> None:
        self.is_over = True

    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        self.has_begun = self.is_over = True

    def abort(self) -> None:
        self.is_over = True


async def replay(flow: http.HTTPFlow) -> None:
    """Send the request of a flow again with the hub's own server, and store its answer in the flow."""
    flow.live = True
    await serve(ReplayedRequest(flow), flow)
