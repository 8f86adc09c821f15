"""Replays a flow's request as if its client sent it to the same listener again. Only mitmproxy's interface shows the
answer.
"""

from __future__ import annotations

from mitmproxy import http

from addons.server.clients.client_connection import ClientConnection
from addons.server.request import AnswerFields, ServedRequest
from addons.server.serve import serve


class NoSocket(ClientConnection):
    """Stand-in for the connection of a replayed request."""

    waits_since = None
    requests = ()

    def handle(self) -> bool:
        return False

    def request_done(self, request: ServedRequest) -> None:
        """Do nothing: no request follows."""


class ReplayedRequest(ServedRequest):
    """A complete request whose answer is stored in its flow."""

    def __init__(self, flow: http.HTTPFlow) -> None:
        super().__init__(NoSocket(flow.client_conn, serve), flow.request, has_body=False)
        self.flow = flow

    def check(self) -> None:
        """Do nothing: a replay has no client that can leave."""

    async def read(self) -> bytes:
        return b""

    def send_head(self, status: int, fields: AnswerFields) -> None:
        self.has_begun = True

    def can_send(self, size: int) -> bool:
        return True

    def send_now(self, data: bytes) -> None:
        """Discard the data."""

    async def send(self, data: bytes) -> None:
        """Discard the data."""

    async def writable(self) -> None:
        """Return at once: nothing limits the output."""

    def end(self, trailers: AnswerFields = ()) -> None:
        self.is_over = True

    async def send_response(self, status: int, fields: AnswerFields, body: bytes) -> None:
        self.has_begun = self.is_over = True

    def abort(self) -> None:
        self.is_over = True


async def replay(flow: http.HTTPFlow) -> None:
    """Serve a flow's request again, and store the answer in the flow."""
    flow.live = True
    await serve(ReplayedRequest(flow), flow)
