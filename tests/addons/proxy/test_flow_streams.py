"""Bodies that go straight from the origin's answer to the client, through a real mitmproxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from mitmproxy import connection, http
from mitmproxy.proxy import commands

from addons.connections import PATCHES
from addons.proxy.flow_streams import FlowStream
from addons.proxy.http.http_connections import STREAM_UNREAD
from addons.proxy.http.http_layer import TLS_RECORD, layer_of
from addons.proxy.patches import install
from addons.requests.headers import TICKET_HEADER
from addons.views.origin import Origin
from addons.views.responses import AnswerBody
from tests.addons.support.lasting_parts import connected
from tests.addons.support.proxied import Proxy, Raw, watching_proxy

PIECE = bytes(32 * 1024)
MUCH = 2_000
"""Pieces that no socket's buffers hold."""
CLIENT_WINDOW = 65_535
"""As HTTP/2 has it unless a client says otherwise."""
REQUEST = b"GET /watch HTTP/1.1\r\nHost: hub\r\n\r\n"


@pytest.fixture(autouse=True)
def installed(restored: None) -> None:
    install(PATCHES)


@dataclass
class Answering:
    """An origin whose one answer is written by `write`, and what became of the answer."""

    write: Callable[[AnswerBody], Awaitable[None]]
    flows: list[http.HTTPFlow] = field(default_factory=list)
    detours: list[bytes] = field(default_factory=list)
    """What went the way of the head."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, stream: FlowStream, request: web.BaseRequest) -> web.StreamResponse:
        body = AnswerBody(request, stream)
        write = body.response.write

        async def noted(data: bytes | bytearray | memoryview) -> None:
            self.detours.append(bytes(data))
            await write(data)

        body.response.write = noted  # type: ignore[method-assign]  # of this one response
        try:
            await body.begin({"Content-Type": "text/plain"})
            await self.write(body)
        finally:
            self.over.set()
        return body.response


@asynccontextmanager
async def before[Server: Raw](proxy: Proxy[Server], answering: Answering) -> AsyncIterator[None]:
    """Have the proxy send each request to the origin, as the router does."""
    origin = Origin()
    await origin.start()

    def redirect(flow: http.HTTPFlow) -> None:
        answering.flows.append(flow)
        flow.request.host, flow.request.port = origin.address
        stream = FlowStream(flow)
        flow.request.headers[TICKET_HEADER] = origin.ticket(lambda request: answering.answer(stream, request))

    proxy.decide = redirect
    yield
    assert origin._runner is not None  # the process' end closes it elsewhere
    await origin._runner.cleanup()
    origin.close()


async def three(body: AnswerBody) -> None:
    await body.write_all([b"one ", b"two "])
    await asyncio.sleep(0)
    await body.write(b"three")


async def test_a_client_of_http1_gets_all_pieces_and_the_end_behind_them() -> None:
    answering = Answering(three)
    with watching_proxy() as proxy:
        async with before(proxy, answering), proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readuntil(b"0\r\n\r\n")
            writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n"
    assert answering.detours == []


async def test_a_client_of_http1_0_gets_all_pieces_and_the_end_of_the_connection() -> None:
    answering = Answering(three)
    with watching_proxy() as proxy:
        async with before(proxy, answering), proxy.serve(), asyncio.timeout(20):
            head, _, body = (await proxy.ask(REQUEST.replace(b"1.1", b"1.0"))).partition(b"\r\n\r\n")
    assert head.split()[1] == b"200"
    assert body == b"one two three"


async def test_a_client_of_http2_gets_all_pieces_and_the_end_behind_them() -> None:
    answering = Answering(three)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert (streams.status[stream], streams.received[stream]) == (200, len("one two three"))
    assert answering.detours == []


async def test_an_answer_that_mitmproxy_holds_goes_the_way_of_its_head() -> None:
    answering = Answering(three)
    with watching_proxy() as proxy:
        proxy.is_streamed = False
        async with before(proxy, answering), proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert b"".join(answering.detours) == b"one two three"
    assert b"one two three" in answer


async def test_addons_that_think_about_the_head_are_waited_for() -> None:
    answering = Answering(three)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        proxy.hook_delay = 0.05
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len("one two three")


class Writing:
    """Writes so many pieces, and counts."""

    def __init__(self, pieces: int = MUCH) -> None:
        self.written = 0
        self._pieces = pieces

    async def __call__(self, body: AnswerBody) -> None:
        for _ in range(self._pieces):
            await body.write(PIECE)
            self.written += len(PIECE)

    async def settled(self) -> int:
        """What has been written when nothing more can be."""
        before = -1
        while self.written != before:
            before = self.written
            await asyncio.sleep(0.3)
        return before


async def test_an_answer_waits_for_a_client_of_http2_that_does_not_read_and_ends_with_its_stream() -> None:
    writing = Writing()
    answering = Answering(writing)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await writing.settled() <= CLIENT_WINDOW + STREAM_UNREAD + len(PIECE)
        streams.cancel(stream)
        await answering.over.wait()
        assert not await FlowStream(answering.flows[0]).begun()


async def test_an_answer_goes_on_when_its_client_of_http2_reads_again() -> None:
    writing = Writing(50)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, Answering(writing)):
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await writing.settled() < 50 * len(PIECE)
        streams.reads = True
        streams.take(stream)
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == 50 * len(PIECE)


async def test_an_answer_waits_for_a_client_of_http1_that_does_not_read_and_ends_when_it_leaves() -> None:
    writing = Writing()
    answering = Answering(writing)
    with watching_proxy() as proxy:
        async with before(proxy, answering), proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            assert await writing.settled() < MUCH * len(PIECE)
            writer.transport.abort()
            await answering.over.wait()


@dataclass
class Sealing:
    """In the place of mitmproxy's layer of TLS: notes how much it gets at once."""

    conn: connection.Client
    sizes: list[int] = field(default_factory=list)

    def send_data(self, data: bytes) -> Iterator[commands.SendData]:
        self.sizes.append(len(data))
        yield commands.SendData(self.conn, data)


async def test_a_large_piece_is_sealed_record_by_record() -> None:
    sealing: list[Sealing] = []

    async def large(body: AnswerBody) -> None:
        client = answering.flows[0].client_conn
        sealing.append(Sealing(client))
        vars(layer_of(client.id))["_tls"] = sealing[0]
        await body.write(bytes(2 * TLS_RECORD))
        await body.write(b"small")

    answering = Answering(large)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == 2 * TLS_RECORD + len("small")
    assert max(sealing[0].sizes) == TLS_RECORD
    assert len(sealing[0].sizes) == 4, "the heads of frames are behind the first two"


async def test_nobody_can_write_to_a_stream_that_is_over() -> None:
    answering = Answering(three)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        with pytest.raises(ConnectionResetError, match="the client has left"):
            await FlowStream(answering.flows[0]).write(b"late")
