"""Bodies that go straight from the origin's answer to the client, through a real mitmproxy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from mitmproxy import connection, http
from mitmproxy.proxy import commands
from OpenSSL import SSL

from addons.certificates.serving_certificate import ServingCertificate
from addons.proxy.flow_streams import LARGEST_WHOLE, SEALING, FlowStream, WholePieces, seal
from addons.proxy.http.http_connections import STREAM_UNREAD
from addons.proxy.http.http_layer import TLS_RECORD, layer_of
from addons.views.responses import AnswerBody
from tests.addons.support.answering import CLIENT_WINDOW, REQUEST, Answering, before
from tests.addons.support.lasting_parts import connected
from tests.addons.support.proxied import Raw, watching_proxy
from tests.addons.support.tls_peers import Shaken, client_context, shake_hands
from tests.cloud.pki import Authority

PIECE = bytes(32 * 1024)
WHOLE_PIECE = bytes(LARGEST_WHOLE)
MUCH = 2_000
"""Pieces that no socket's buffers hold."""


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


# -- pieces that go at once ------------------------------------------------------------------------------------------


async def test_pieces_of_both_ways_come_in_their_order_and_the_addons_see_each() -> None:
    counted: list[bytes] = []

    def count(chunk: bytes) -> bytes:
        counted.append(chunk)
        return chunk

    async def write(body: AnswerBody) -> None:
        response = answering.flows[0].response
        assert response is not None
        response.stream = count
        outlet = body.outlet
        assert outlet is not None
        for text in (b"one ", b"three "):
            assert outlet(text)
            await body.write(b"two ")
        assert outlet(b"four")

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len("one two three two four")
    assert counted == [b"one ", b"two ", b"three ", b"two ", b"four", b""]
    assert answering.detours == []


async def test_what_a_window_has_no_room_for_waits_and_nothing_overtakes_it() -> None:
    refused, opened = asyncio.Event(), asyncio.Event()
    sent: list[int] = []

    async def write(body: AnswerBody) -> None:
        outlet = body.outlet
        assert outlet is not None
        while outlet(WHOLE_PIECE):
            sent.append(len(WHOLE_PIECE))
        await body.write(WHOLE_PIECE)
        left = CLIENT_WINDOW - sum(sent)
        assert left < len(WHOLE_PIECE)
        assert not outlet(b"x"), "a piece waits for the window"
        refused.set()
        await opened.wait()
        assert outlet(b"last")

    async with connected(Raw(b"")) as (proxy, streams), before(proxy, Answering(write)):
        streams.reads = False
        stream = streams.get("/watch", {})
        await refused.wait()
        await streams.until(lambda: streams.received[stream] == CLIENT_WINDOW)
        streams.reads = True
        streams.take(stream)
        await streams.until(lambda: streams.received[stream] == sum(sent) + len(WHOLE_PIECE))
        opened.set()
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == sum(sent) + len(WHOLE_PIECE) + len("last")


async def test_a_stream_that_its_client_cancelled_takes_nothing() -> None:
    async def write(body: AnswerBody) -> None:
        outlet = body.outlet
        assert outlet is not None
        await body.write(b"begun")
        try:
            await asyncio.Event().wait()  # until the origin cancels this
        finally:
            answers.append(outlet(b"late"))

    answers: list[bool] = []
    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        streams.cancel(stream)
        await answering.over.wait()
        assert FlowStream(answering.flows[0]).outlet() is None
    assert answers == [False]


async def test_a_client_of_http1_is_written_to_by_its_task() -> None:
    async def write(body: AnswerBody) -> None:
        assert body.outlet is None
        await body.write(b"whole")

    with watching_proxy() as proxy:
        async with before(proxy, Answering(write)), proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(REQUEST.replace(b"1.1", b"1.0"))
    assert answer.endswith(b"whole")


def pieces_of(flow: http.HTTPFlow) -> WholePieces:
    outlet = FlowStream(flow).outlet()
    pieces = getattr(outlet, "__self__", None)
    assert isinstance(pieces, WholePieces)
    return pieces


@pytest.mark.parametrize(("closing", "waiting", "taken"), [(False, 0, [b"x"]), (True, 0, []), (False, 1, [])])
async def test_a_socket_that_is_full_or_closes_gets_nothing(
    closing: bool, waiting: int, taken: list[bytes]
) -> None:
    written: list[bytes] = []
    socket = SimpleNamespace(
        is_closing=lambda: closing,
        get_write_buffer_size=lambda: waiting,
        write=lambda data: written.append(data[9:]),
    )

    async def write(_: AnswerBody) -> None:
        pieces = pieces_of(answering.flows[0])
        pieces._transport = socket  # type: ignore[assignment]  # a kernel's buffer has no size that is known here
        assert pieces.send(b"x") is bool(taken)

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
    assert written == taken


async def test_what_is_larger_than_a_record_or_comes_before_a_frame_of_h2_waits() -> None:
    async def write(body: AnswerBody) -> None:
        outlet, client = body.outlet, answering.flows[0].client_conn
        assert outlet is not None
        assert not outlet(bytes(LARGEST_WHOLE + 1))
        layer = layer_of(client.id)
        assert layer is not None
        assert layer.of_http2 is not None
        h2_conn, tls = layer.of_http2
        assert tls is None
        h2_conn.ping(b"12345678")
        assert not outlet(b"x")

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams), before(proxy, answering):
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == 0


@pytest.fixture
def shaken(tmp_path: Path) -> Shaken:
    authority, server = Authority(), SSL.Context(SSL.TLS_SERVER_METHOD)
    ServingCertificate(*authority.issue_server("hub", ["hub"]).write(tmp_path, "hub")).use_in(server)
    return shake_hands(server, client_context(authority.certificate), "hub")


@pytest.mark.parametrize("size", [1, 200, SEALING, LARGEST_WHOLE + 9, 3 * LARGEST_WHOLE])
def test_all_that_is_sealed_can_be_read_by_the_client(shaken: Shaken, size: int) -> None:
    for byte in (b"a", b"b"):
        shaken.incoming.write(seal(shaken.server, byte * size))
        got = b""
        while len(got) < size:
            got += shaken.client.read(size)
        assert got == byte * size


def test_a_whole_piece_is_one_record(shaken: Shaken) -> None:
    sealed = seal(shaken.server, bytes(LARGEST_WHOLE + 9))
    assert int.from_bytes(sealed[3:5]) + 5 == len(sealed)


@pytest.mark.parametrize("error", [SSL.ZeroReturnError(), SSL.SysCallError(-1, "Unexpected EOF")])
def test_nothing_is_sealed_for_a_client_that_has_ended_its_tls(error: SSL.Error) -> None:
    def refuse(data: bytes) -> None:
        raise error

    ended = SimpleNamespace(sendall=refuse)
    assert seal(ended, b"late") == b""  # type: ignore[arg-type]  # OpenSSL says so at moments of its own
