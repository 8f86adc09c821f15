"""A hub's process without sockets: its real parts on a real disk, behind the decisions of the real router.

Its tasks run in a context of their own, so that a kill ends them where they are: nothing more reaches disk or cloud.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from addons.filters.chain import FILTERS
from addons.offline.offline_mode import Offline
from addons.offline.offline_request import OfflineRequest
from addons.options import OPTIONS
from addons.parts import Parts, make_parts
from addons.requests.caller import Caller, Lending, Listener
from addons.requests.client_request import ClientRequest
from addons.requests.clients import Clients
from addons.requests.headers import ANSWERED_HEADER
from addons.requests.route_decision import RouteKind, check_resumption, decide, may_be_filtered
from addons.settings import parse_settings
from addons.upstream import health
from addons.upstream.servers import parse_server
from addons.views.responses import status_response
from kube.concurrency.pulse import Pulse
from kube.disk.database import Batch, Disk, DiskError
from kube.disk.writer import DiskWriter
from kube.errors import StatusError, unavailable
from kube.http.client import ApiResponse, Client, RawResponse, Unreachable, WatchStream
from kube.http.session import Session
from kube.requests.request_info import RequestInfo, parse_request
from kube.wire.encoding import Encoding
from tests.histories.cloud import Cloud, Link

NODE = "n1"
SERVER = "https://cloud:6443"
PROBE = 2.0
"""Seconds between two looks of the node at its link."""
WRITE = 0.002
"""Seconds that the disk takes for a piece of work."""
OWNER: contextvars.ContextVar[Hub | None] = contextvars.ContextVar("owner", default=None)
SETTINGS = {name: default for name, _, default, _ in OPTIONS} | {"server": SERVER, "node": NODE}


class InlineWriter(DiskWriter):
    """Does the work in the loop, whose time is virtual; nothing any more once the process was killed."""

    def __init__(self, is_dead: Callable[[], bool]) -> None:
        self._is_dead = is_dead

    @property
    def waiting(self) -> int:
        return 0

    async def do[T](self, work: Callable[[], T]) -> T:
        await asyncio.sleep(WRITE)
        if self._is_dead():
            await asyncio.Event().wait()
        return work()

    def close(self, last: Callable[[], None]) -> None:
        if not self._is_dead():
            last()


class FillingDisk(Disk):
    """A disk that takes no write while it is full."""

    def __init__(self, folder: Path, is_full: Callable[[], bool]) -> None:
        super().__init__(folder)
        self._is_full = is_full

    def write(self, batch: Batch) -> None:
        self._check()
        super().write(batch)

    def put_all(self, tables: Mapping[str, Mapping[str, bytes | None]]) -> None:
        self._check()
        super().put_all(tables)

    def _check(self) -> None:
        if self._is_full():
            raise DiskError("database or disk is full")


class CloudClient(Client):
    """The hub's requests to the cloud, in memory."""

    def __init__(self, cloud: Cloud, hub: Hub) -> None:
        super().__init__(cast(Session, None), "", {})
        self._cloud, self._hub = cloud, hub

    def with_headers(self, headers: Mapping[str, str]) -> Client:
        return self

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
        target = str(URL(path).with_query(query or {}))
        _, found = await self._cloud.answer(method, target, body or b"", content_type)
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
        types = CIMultiDict(headers)
        found = CIMultiDict({"Content-Type": "application/json", ANSWERED_HEADER: "1"})
        try:
            code, document = await self._cloud.answer(method, target, body, types.get("Content-Type", ""))
        except StatusError as error:
            if error.retry_after is not None:
                found["Retry-After"] = str(error.retry_after)
            code, document = error.code, error.to_dict()
        await self._hub.alive()
        return RawResponse(code, found, json.dumps(document).encode())

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str = ""
    ) -> AsyncIterator[WatchStream]:
        await self._hub.alive()
        lines = await self._cloud.watch(
            str(URL(path).with_query(query) if query else URL(path, encoded=True))
        )
        yield WatchStream(Encoding.JSON, lines)


class MemoryClients(Clients):
    """All of the hub's clients are its own: the callers of a history are components of the node."""

    def __init__(self, client: Client) -> None:
        self.hub = self._lent = self._own = client


class Exchange:
    """One request of a component: the status of its answer, and the pieces of the body as they come."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.reads = asyncio.Event()
        """Whether the client reads what comes."""
        self.reads.set()
        self.task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Break the connection off, from either side."""
        if self.task is not None:
            self.task.cancel()

    async def whole(self) -> bytes:
        found = b""
        while (piece := await self.pieces.get()) is not None:
            found += piece
        return found

    # -- as `addons.requests.client_request.ClientStream` ----------------------------------------------------------

    async def begun(self) -> bool:
        return True

    async def write(self, data: bytes) -> None:
        await self.reads.wait()
        self.pieces.put_nowait(data)

    def outlet(self) -> Callable[[bytes], bool]:
        def send(data: bytes) -> bool:
            if self.reads.is_set():
                self.pieces.put_nowait(data)
            return self.reads.is_set()

        return send


class Piping(AbstractStreamWriter):
    """Takes the head and the pieces that aiohttp writes."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        await self._exchange.write(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None: ...
    async def drain(self) -> None: ...
    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None: ...
    def enable_chunking(self) -> None: ...

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        if not self._exchange.status.done():
            self._exchange.status.set_result(int(status_line.split()[1]))


class Hub:
    """One process of the hub, from its start to its end or a kill."""

    def __init__(self, folder: Path, cloud: Cloud, idle: float = 300.0) -> None:
        self._cloud = cloud
        self._settings = parse_settings(SETTINGS | {"state_dir": str(folder), "idle": idle})
        self.is_dead = False
        self.disk_is_full = False
        self._client = CloudClient(cloud, self)
        self.parts: Parts
        self.offline = Offline(folder / "cache")
        self.offline.copies.writer.close(lambda: None)
        self.offline.copies.disk = FillingDisk(folder / "cache", lambda: self.disk_is_full)
        self.offline.copies.writer = InlineWriter(lambda: self.is_dead)
        self.health = health.ServerHealth(parse_server(SERVER))
        self.upstream = health.Cloud([self.health], "priority")
        self.changed = Pulse()
        self._relayed: dict[Exchange, Callable[[], bool]] = {}

    async def alive(self) -> None:
        """Return while the process lives."""
        if self.is_dead:
            await asyncio.Event().wait()

    async def start(self) -> None:
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        await asyncio.create_task(self._start(), context=context)

    async def _start(self) -> None:
        await self.offline.open()
        clients = MemoryClients(self._client)
        self.parts = make_parts(
            self._settings, clients, self.upstream, self.changed, self._confirm, self.offline, FILTERS
        )
        self.parts.rules.listen(self._rules_changed)
        self._tasks = [asyncio.create_task(self._probe()), asyncio.create_task(self._end_delays())]

    async def stop(self) -> None:
        """End in order: what waits is written."""
        self.parts.inputs.close()
        self.offline.close()
        self.parts.sources.close()
        await self.kill()

    async def kill(self) -> None:
        """End as by SIGKILL: what the disk does not have is lost."""
        self.is_dead = True
        self.offline.copies.disk.close()
        self.parts.origin.close()  # its socket is bound, and nobody listens
        for _ in range(3):
            mine = [task for task in asyncio.all_tasks() if task.get_context().get(OWNER) is self]
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)

    # -- the link -------------------------------------------------------------------------------------------------

    async def _confirm(self) -> bool:
        self._look()
        return self.upstream.is_up

    def _look(self) -> None:
        found = self._cloud.link is not Link.DOWN
        if self.health.succeeded() if found else self.health.failed("no answer"):
            self.changed.notify()

    async def _probe(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(PROBE)

    async def _end_delays(self) -> None:
        """As the hub's assembly does."""
        while True:
            await self.changed.wait()
            if self.upstream.is_up:
                self.parts.sources.cloud_recovered()

    # -- what components ask --------------------------------------------------------------------------------------

    def ask(
        self,
        component: str,
        target: str,
        *,
        method: str = "GET",
        accept: str = "application/json",
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> Exchange:
        """Send a request of a component of the node."""
        exchange = Exchange()
        headers = {"Accept": accept, "Content-Type": content_type}
        request = _request(exchange, method, target, headers, body)
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        handling = self._handle(exchange, component, request, body)
        exchange.task = asyncio.create_task(handling, name=f"{method} {target}", context=context)
        return exchange

    async def _handle(
        self, exchange: Exchange, component: str, request: web.BaseRequest, body: bytes
    ) -> None:
        try:
            try:
                await self.alive()
                await self._route(exchange, component, request, body)
            except StatusError as error:
                await self._give(exchange, status_response(error))
        except Unreachable:
            if not exchange.status.done():
                exchange.status.set_result(502)
        finally:
            if not exchange.status.done():
                exchange.status.set_exception(ConnectionError("the hub has closed the connection"))
                exchange.status.exception()
            exchange.pieces.put_nowait(None)

    async def _route(self, exchange: Exchange, component: str, request: web.BaseRequest, body: bytes) -> None:
        """As `addons.router.Router` does."""
        info, caller, rules = (
            parse_request(request.method, request.raw_path),
            Caller(Lending.HUB),
            self.parts.rules,
        )
        is_filterable = may_be_filtered(info, Listener.PLAIN, rules.rules)
        if is_filterable:
            await rules.wait_known(self._settings.wait)
        accept, relay = request.headers["Accept"], self.offline.cached_relay
        policy = relay.offline_policy
        route = decide(
            info,
            component,
            caller,
            Listener.PLAIN,
            accept,
            rules.rules,
            is_upgrade=False,
            offline_policy=policy,
        )
        wanted = ClientRequest(info, component, caller, route, stream=exchange)
        if route.kind is RouteKind.RELAY:
            if is_filterable:
                check_resumption(info, rules.rules, self.parts.sources.can_resume)
            await self._relay(exchange, component, info, request, body)
        elif route.kind is RouteKind.CACHED_RELAY:
            await self._relay_or_answer(exchange, wanted, request, body)
        else:
            if route.kind is not RouteKind.VIEW:
                wanted = ClientRequest(info, component, caller, route)
            await self._give(exchange, await self.parts.answerers[route.kind].answer(wanted, request))

    async def _relay_or_answer(
        self, exchange: Exchange, wanted: ClientRequest, request: web.BaseRequest, body: bytes
    ) -> None:
        relay, was_sent = self.offline.cached_relay, False
        if relay.goes_to_cloud(wanted.info):
            try:
                answer = await self._send(request, body)
            except Unreachable:
                was_sent = True
            else:
                if self._is_filtered(wanted.component, wanted.info):
                    raise unavailable("the rules have changed meanwhile", retry_after=1)
                asked = OfflineRequest.of(wanted.info, request.raw_path, request.headers, body)
                relay.keep_response(wanted.caller, asked, answer)
                await self._give(exchange, web.Response(status=answer.status, body=answer.body))
                return
        again = ClientRequest(wanted.info, wanted.component, wanted.caller, wanted.route, was_sent=was_sent)
        await self._give(exchange, await relay.answer(again, request))

    async def _relay(
        self, exchange: Exchange, component: str, info: RequestInfo, request: web.BaseRequest, body: bytes
    ) -> None:
        if not self.upstream.is_up:
            raise unavailable("the cloud cannot be reached")
        if info.verb != "watch":
            answer = await self._send(request, body)
            if self._is_filtered(component, info):
                raise unavailable("the rules have changed meanwhile", retry_after=1)
            await self._give(exchange, web.Response(status=answer.status, body=answer.body))
            return
        self._relayed[exchange] = lambda: self._is_filtered(component, info)
        try:
            async with self._client.watch(request.raw_path, query={}, accept="", timeout=0) as stream:
                exchange.status.set_result(200)
                async for chunk in stream.chunks:
                    await exchange.write(chunk)
        finally:
            del self._relayed[exchange]

    async def _send(self, request: web.BaseRequest, body: bytes) -> RawResponse:
        return await self._client.relay(
            request.method, request.raw_path, headers=request.headers.items(), body=body
        )

    def _rules_changed(self) -> None:
        for exchange, is_filtered in list(self._relayed.items()):
            if is_filtered():
                exchange.close()

    def _is_filtered(self, component: str, info: RequestInfo) -> bool:
        assert info.type is not None
        return bool(self.parts.rules.rules.chain(component, info.type.group, info.type.resource, info.verb))

    async def _give(self, exchange: Exchange, response: web.StreamResponse) -> None:
        """Send an answer that is whole; one that was written piece by piece has been sent."""
        if not exchange.status.done():
            exchange.status.set_result(response.status)
            body: Any = response.body if isinstance(response, web.Response) else b""
            await exchange.write(
                bytes(getattr(body, "_body", None) or getattr(body, "_value", None) or body or b"")
            )


class _NoConnection(BaseProtocol):
    """What a request of aiohttp asks of its connection."""

    ssl_context = peername = sockname = None


def _request(
    exchange: Exchange, method: str, target: str, headers: Mapping[str, str], body: bytes
) -> web.BaseRequest:
    fields = CIMultiDictProxy(CIMultiDict(headers))
    raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
    message = RawRequestMessage(
        method, target, HttpVersion11, fields, raw, False, None, False, False, URL(target, encoded=True)
    )
    loop = asyncio.get_running_loop()
    payload = EMPTY_PAYLOAD
    protocol = cast(Any, _NoConnection(loop))
    if body:
        payload = StreamReader(protocol, 2**20, loop=loop)
        payload.feed_data(body)
        payload.feed_eof()
    return web.BaseRequest(message, payload, protocol, Piping(exchange), cast(Any, None), loop)
