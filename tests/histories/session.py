"""A hub's HTTP session in memory: to the cloud over the node's link, and to the hubs of its pool's leaders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multidict import CIMultiDict

from addons.requests.headers import AGE_HEADER
from addons.requests.route_decision import PEER_PROBE_PATH
from addons.telemetry.labels import HUB
from kube.errors import StatusError
from kube.http.session import read_body
from kube.wire.encoding import Encoding
from tests.addons.support.exchange import Exchange
from tests.histories.line import Line

if TYPE_CHECKING:
    from tests.histories.hub import LeaderOf


@dataclass
class Answer:
    """A response, as a `kube.http.session.Response`."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    async def read(self, limit: int) -> bytes:
        return await read_body(self.pieces, limit)

    def chunks(self) -> AsyncIterator[bytes]:
        return self.pieces


class MemorySession:
    """A `kube.http.session.Session` in memory. It returns nothing after its process was killed."""

    def __init__(self, line: Line, leader_of: LeaderOf, is_dead: Callable[[], bool]) -> None:
        self._line, self._leader_of, self._is_dead = line, leader_of, is_dead
        self._to_leaders: dict[Exchange, str] = {}

    def cut_leader(self, address: str) -> int:
        """Close the connections to a leader; return the number of aborted requests."""
        ended = [each for each, to in self._to_leaders.items() if to == address]
        for each in ended:
            each.close()
        return len(ended)

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Answer]:
        if self._is_dead():
            await asyncio.Event().wait()
        fields = CIMultiDict(headers)
        if not url.startswith("/"):
            _, _, server, path = url.split("/", 3)
            async with self._asked(server.rpartition(":")[0], f"/{path}", fields) as answer:
                yield answer
        else:
            yield await _of_cloud(self._line, method, url, fields, body or b"")

    @asynccontextmanager
    async def _asked(self, address: str, target: str, fields: CIMultiDict[str]) -> AsyncIterator[Answer]:
        leader = self._leader_of(address)
        if leader is None:
            raise ConnectionRefusedError("nobody listens")
        if target == PEER_PROBE_PATH:
            age = {AGE_HEADER: "0" if leader.upstream.is_up else "5"}
            yield Answer(404, age, _once(b""))
            return
        exchange = leader.ask(HUB, target, headers=fields, peer="n1")
        self._to_leaders[exchange] = address
        try:
            yield Answer(await exchange.status, exchange.headers, exchange.pieces())
        finally:
            del self._to_leaders[exchange]
            exchange.close()


async def _of_cloud(line: Line, method: str, target: str, fields: CIMultiDict[str], body: bytes) -> Answer:
    """Send a request to the cloud; OSError if there is no response."""
    is_hubs = fields.get("User-Agent") == HUB
    headers = CIMultiDict({"Content-Type": Encoding.JSON.value})
    try:
        if "watch=true" in target:
            return Answer(200, headers, await line.watch(target, is_hubs=is_hubs))
        code, found = await line.answer(method, target, body, fields.get("Content-Type", ""), is_hubs=is_hubs)
    except StatusError as error:
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        code, found = error.code, error.to_dict()
    is_unread = code == 200 and fields.get("Prefer") == "return=minimal"
    return Answer(code, headers, _once(b"" if is_unread else json.dumps(found).encode()))


async def _once(piece: bytes) -> AsyncIterator[bytes]:
    yield piece
