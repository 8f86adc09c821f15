"""The requests of a hub in memory: to the cloud by its line, and to the hub of its pool's leader."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from multidict import CIMultiDict
from yarl import URL

from addons.requests.clients import Clients
from addons.requests.headers import AGE_HEADER, ANSWERED_HEADER, SERVER_HEADER
from kube.errors import StatusError, parse_status
from kube.http.client import ApiResponse, Client, RawResponse, Unreachable, WatchStream
from kube.http.session import Session
from kube.wire.encoding import Encoding
from tests.histories.exchange import Exchange
from tests.histories.line import Line

if TYPE_CHECKING:
    from tests.histories.hub import Hub


class HubClient(Client):
    """The hub's client of the cloud. `with_headers` makes that of a peer, where they name one."""

    def __init__(self, line: Line, hub: Hub, leader: Callable[[], Hub | None]) -> None:
        super().__init__(cast(Session, None), "", {})
        self._line, self._hub, self._leader = line, hub, leader
        self._open: set[Exchange] = set()

    def with_headers(self, headers: Mapping[str, str]) -> Client:
        return (
            PeerClient(self._line, self._hub, self._leader, self._open) if SERVER_HEADER in headers else self
        )

    def cut_peers(self) -> int:
        """Close the connections to the leader."""
        count = len(self._open)
        for each in list(self._open):
            each.close()
        return count

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "",
        body: bytes | None = None,
        content_type: str = "application/json",
        codings: str = "",
        timeout: float = 60.0,
    ) -> ApiResponse:
        await self._hub.alive()
        target = _target(path, query)
        _, found = await self._line.answer(method, target, body or b"", content_type, is_hubs=True)
        await self._hub.alive()
        return ApiResponse(Encoding.JSON, json.dumps(found).encode())

    async def relay(
        self,
        method: str,
        target: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        timeout: float = 60.0,
    ) -> RawResponse:
        await self._hub.alive()
        content_type = CIMultiDict(headers).get("Content-Type", "")
        found = CIMultiDict({"Content-Type": "application/json", ANSWERED_HEADER: "1"})
        try:
            code, document = await self._line.answer(method, target, body, content_type, is_hubs=False)
        except StatusError as error:
            code, document = error.code, error.to_dict()
        await self._hub.alive()
        return RawResponse(code, found, json.dumps(document).encode())

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        await self._hub.alive()
        lines = await self._line.watch(_target(path, query), is_hubs=True)
        yield WatchStream(Encoding.JSON, lines)


class PeerClient(HubClient):
    """A follower's client of the leader's peer port."""

    def __init__(self, line: Line, hub: Hub, leader: Callable[[], Hub | None], opened: set[Exchange]) -> None:
        super().__init__(line, hub, leader)
        self._open = opened

    async def relay(
        self,
        method: str,
        target: str,
        *,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        timeout: float = 60.0,
    ) -> RawResponse:
        """A probe."""
        leader = self._reached()
        age = "0" if leader.upstream.is_up else "5"
        return RawResponse(404, CIMultiDict({ANSWERED_HEADER: "1", AGE_HEADER: age}), b"")

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "",
        body: bytes | None = None,
        content_type: str = "application/json",
        codings: str = "",
        timeout: float = 60.0,
    ) -> ApiResponse:
        async with self._asked(_target(path, query), accept) as exchange:
            return ApiResponse(Encoding.JSON, await exchange.whole())

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        async with self._asked(_target(path, query), accept) as exchange:
            yield WatchStream(Encoding.JSON, exchange.pieces())

    @asynccontextmanager
    async def _asked(self, target: str, accept: str) -> AsyncIterator[Exchange]:
        exchange = self._reached().ask("edgehub", target, accept=accept, peer="n1")
        self._open.add(exchange)
        try:
            try:
                status = await exchange.status
            except ConnectionError as error:
                raise Unreachable(str(error)) from error
            if status != 200:
                raise parse_status(await exchange.whole(), status)
            yield exchange
        finally:
            self._open.discard(exchange)
            exchange.close()

    def _reached(self) -> Hub:
        leader = self._leader()
        if leader is None:
            raise Unreachable("connection refused")
        return leader


class HubClients(Clients):
    """All of a history's callers are components of the node, so one client has all rights."""

    def __init__(self, client: Client) -> None:
        self.hub = self._lent = self._own = client


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return str(URL(path).with_query(query)) if query else path
