"""What an answer needs of the client that asked: the seam between who answers a request and mitmproxy's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from addons.requests.answers import ClientRequest
from addons.requests.exchange.client_addresses import ClientAddress
from addons.requests.request_context import RelayUpstream, RequestContext
from kube.http.transport.connection_pool import Connection
from kube.http.transport.request_fields import HeaderFields

WITHOUT_BODY = (204, 304)
"""Codes of answers that have no body, and no length."""
SWITCHED = 101
"""The status of an answer after which client and server speak another protocol."""


class ClientSide(Protocol):
    """One request and its client. Parts of an answer go to the layers at the next `play`."""

    address: ClientAddress
    """What the clients at the same address hold."""
    context: RequestContext | None
    """What the addons know of the request; None where it was never read."""
    is_head: bool
    """Whether the client asks for the head of an answer alone."""
    is_body_streamed: bool
    """Whether the addons have the request's body go on as it comes."""

    # -- the request

    @property
    def kept_body(self) -> bytes | bytearray | None:
        """What has come of the request's body, for another server; None where that is not kept."""

    def request(self) -> ClientRequest:
        """The request, for who answers it here."""

    def leave_to_cloud(self) -> None:
        """Have a server answer the request after all. StatusError where none may."""

    def fields_to(self, upstream: RelayUpstream, length: int | None) -> HeaderFields:
        """As `addons.requests.exchange.request_head.fields_to_send`."""

    def goes_by(self, connection: Connection, upstream: RelayUpstream) -> None:
        """Show people by which connection the request goes."""

    # -- the answer

    def answer_head(self, status: int, fields: Iterable[tuple[str, str]]) -> None:
        """The head of an answer of the hub's own."""

    def server_head(self, status: int, fields: HeaderFields, *, is_framed: bool) -> None:
        """The head of a server's answer, whose end is told unless only the connection's end tells it."""

    def data(self, piece: bytes) -> None:
        """A piece of the body."""

    def trailers(self, fields: HeaderFields) -> None:
        """The fields behind a body."""

    def end(self) -> None:
        """The end of an answer."""

    def break_off(self, why: str, *, is_clients_fault: bool = False) -> None:
        """The end of an answer that is not whole."""

    @property
    def has_parts(self) -> bool:
        """Whether anything is to be played."""

    async def play(self) -> None:
        """Have the layers handle the parts so far."""

    def switch(self, receive: Callable[[bytes], None]) -> None:
        """Have what the client sends behind a 101 handed on. The answer is over where that 101 is not sent."""

    async def begun(self) -> bool:
        """Wait until the addons have seen the head; whether pieces of the body may follow."""

    # -- the client

    @property
    def is_over(self) -> bool:
        """Whether nothing more of an answer goes to the client."""

    @property
    def has_room(self) -> bool:
        """Whether the client has read enough of what it was sent before."""

    async def wait_for_room(self) -> None:
        """Return when it has. ClientLeft when it has left."""

    def direct(self) -> Callable[[bytes], bool] | None:
        """A shorter way of the pieces of a body that is streamed, as `addons.requests.answers.ClientStream.outlet`."""
