"""A client that takes an answer part by part, without mitmproxy: what it is told, and when it has room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from addons.requests.answers import ClientRequest
from addons.requests.exchange.client_addresses import ClientAddress, ListenerClients
from addons.requests.request_context import RelayUpstream, RequestContext
from kube.http.transport.connection_pool import Connection
from kube.http.transport.request_fields import HeaderFields
from tests.addons.support.samples import request_context

type Part = tuple[object, ...]


class NotedClient:
    """An `addons.requests.exchange.client_side.ClientSide` that notes each play as a list of its parts."""

    def __init__(self) -> None:
        self.address = ClientAddress(ListenerClients())
        self.context: RequestContext | None = request_context("/api/v1/pods", method="PUT")
        self.is_head = self.is_body_streamed = self.is_over = False
        self.kept_body: bytes | None = b""
        self.plays: list[list[Part]] = []
        self.was_left_to_cloud = False
        self.went_by: Connection | None = None
        self.direct_sends: Callable[[bytes], bool] | None = None
        self.reads = asyncio.Event()
        self.reads.set()
        self.played = asyncio.Event()
        """Set at each play."""
        self.receive: Callable[[bytes], None] | None = None
        self._parts: list[Part] = []

    @property
    def told(self) -> list[Part]:
        """All parts that were played."""
        return [part for played in self.plays for part in played]

    def request(self) -> ClientRequest:
        assert self.context is not None
        assert self.context.route is not None
        return ClientRequest(self.context.info, "kubelet", self.context.caller, self.context.route)

    def leave_to_cloud(self) -> None:
        self.was_left_to_cloud = True

    def fields_to(self, upstream: RelayUpstream, length: int | None) -> HeaderFields:
        return [(b":authority", upstream.host.encode()), (b"length", repr(length).encode())]

    def goes_by(self, connection: Connection, upstream: RelayUpstream) -> None:
        self.went_by = connection

    def answer_head(self, status: int, fields: Iterable[tuple[str, str]]) -> None:
        self._parts.append(("head", status, dict(fields)))

    def server_head(self, status: int, fields: HeaderFields, *, is_framed: bool) -> None:
        self._parts.append(("head", status, is_framed))

    def data(self, piece: bytes) -> None:
        self._parts.append(("data", piece))

    def trailers(self, fields: HeaderFields) -> None:
        self._parts.append(("trailers", fields))

    def end(self) -> None:
        self._parts.append(("end",))

    def break_off(self, why: str, *, is_clients_fault: bool = False) -> None:
        self._parts.append(("broken off", why, is_clients_fault))

    @property
    def has_parts(self) -> bool:
        return bool(self._parts)

    async def play(self) -> None:
        self.plays.append(self._parts)
        self._parts = []
        self.played.set()

    def switch(self, receive: Callable[[bytes], None]) -> None:
        self.receive = receive

    async def begun(self) -> bool:
        return True

    @property
    def has_room(self) -> bool:
        return self.reads.is_set()

    async def wait_for_room(self) -> None:
        await self.reads.wait()

    def direct(self) -> Callable[[bytes], bool] | None:
        return self.direct_sends
