"""Pieces of the hub's own answers that go to a client at once: frames in TLS records of their own, or chunks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from h2.connection import H2Connection
from OpenSSL import SSL

from addons.certificates.serving_certificate import ServingCertificate
from addons.requests.answers import ClientStream
from addons.requests.exchange.direct_pieces import LARGEST_FRAME, SEALING, DirectPieces, Http2Pieces, seal
from tests.addons.support.answering import CLIENT_WINDOW, REQUEST, Answering, answer_here
from tests.addons.support.lasting_parts import connected
from tests.addons.support.proxied import Raw, watching_proxy
from tests.addons.support.tls_peers import Shaken, client_context, shake_hands
from tests.cloud.pki import Authority

WHOLE_PIECE = bytes(LARGEST_FRAME)


async def test_pieces_of_both_ways_come_in_their_order_and_the_addons_see_each() -> None:
    counted: list[bytes] = []

    def count(chunk: bytes) -> bytes:
        counted.append(chunk)
        return chunk

    async def write(stream: ClientStream) -> None:
        response = answering.flows[0].response
        assert response is not None
        response.stream = count
        outlet = stream.outlet
        assert outlet is not None
        for text in (b"one ", b"three "):
            assert outlet(text)
            await stream.write(b"two ")
        assert outlet(b"four")

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len("one two three two four")
    assert counted == [b"one ", b"two ", b"three ", b"two ", b"four", b""]


async def test_what_a_window_has_no_room_for_waits_and_nothing_overtakes_it() -> None:
    refused, opened = asyncio.Event(), asyncio.Event()
    sent: list[int] = []

    async def write(stream: ClientStream) -> None:
        outlet = stream.outlet
        assert outlet is not None
        while outlet(WHOLE_PIECE):
            sent.append(len(WHOLE_PIECE))
        await stream.write(WHOLE_PIECE)
        left = CLIENT_WINDOW - sum(sent)
        assert left < len(WHOLE_PIECE)
        assert not outlet(b"x"), "a piece waits for the window"
        refused.set()
        await opened.wait()
        assert outlet(b"last")

    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(write))
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
    async def write(stream: ClientStream) -> None:
        outlet = stream.outlet
        assert outlet is not None
        await stream.write(b"begun")
        try:
            await asyncio.Event().wait()  # until the stream's end cancels this
        finally:
            answers.append(outlet(b"late"))

    answers: list[bool] = []
    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        streams.cancel(stream)
        await answering.over.wait()
    assert answers == [False]


@pytest.mark.parametrize(
    ("version", "body"), [(b"1.1", b"5\r\nwhole\r\n3\r\nand\r\n0\r\n\r\n"), (b"1.0", b"wholeand")]
)
async def test_a_client_of_http1_gets_chunks_or_what_ends_with_its_connection(
    version: bytes, body: bytes
) -> None:
    async def write(stream: ClientStream) -> None:
        outlet, response = stream.outlet, answering.flows[0].response
        assert outlet is not None
        assert outlet(b"whole")
        assert response is not None
        response.stream = lambda _: b""
        assert outlet(b"that an addon takes away")
        response.stream = True
        await stream.write(b"and")

    answering = Answering(write)
    with watching_proxy() as proxy:
        answer_here(proxy, answering)
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST.replace(b"1.1", version))
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(body)) == body
            writer.close()


async def test_a_client_that_asks_for_the_head_alone_gets_no_piece() -> None:
    async def write(stream: ClientStream) -> None:
        assert stream.outlet is None
        await stream.write(b"nobody reads this")

    with watching_proxy() as proxy:
        answer_here(proxy, Answering(write))
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(REQUEST.replace(b"GET", b"HEAD").replace(b"1.1", b"1.0"))
    assert answer.endswith(b"\r\n\r\n")


def frames_of(stream: ClientStream) -> DirectPieces:
    pieces = getattr(stream.outlet, "__self__", None)
    assert isinstance(pieces, DirectPieces)
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

    async def write(stream: ClientStream) -> None:
        pieces = frames_of(stream)
        pieces._transport = socket  # type: ignore[assignment]  # a kernel's buffer has no size that is known here
        assert pieces.send(b"x") is bool(taken)

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
    assert written == taken


async def test_what_is_larger_than_a_record_goes_in_frames_and_a_frame_of_h2_goes_first() -> None:
    async def write(stream: ClientStream) -> None:
        pieces = frames_of(stream)
        assert isinstance(pieces, Http2Pieces)
        assert pieces.send(bytes(LARGEST_FRAME + 1))
        assert isinstance(pieces._h2_conn, H2Connection)
        pieces._h2_conn.ping(b"12345678")
        assert not pieces.send(b"x")

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == LARGEST_FRAME + 1


@pytest.fixture
def shaken(tmp_path: Path) -> Shaken:
    authority, server = Authority(), SSL.Context(SSL.TLS_SERVER_METHOD)
    ServingCertificate(*authority.issue_server("hub", ["hub"]).write(tmp_path, "hub")).use_in(server)
    return shake_hands(server, client_context(authority.certificate), "hub")


@pytest.mark.parametrize("size", [1, 200, SEALING, LARGEST_FRAME + 9, 3 * LARGEST_FRAME])
def test_all_that_is_sealed_can_be_read_by_the_client(shaken: Shaken, size: int) -> None:
    for byte in (b"a", b"b"):
        shaken.incoming.write(seal(shaken.server, byte * size))
        got = b""
        while len(got) < size:
            got += shaken.client.read(size)
        assert got == byte * size


def test_a_whole_piece_is_one_record(shaken: Shaken) -> None:
    sealed = seal(shaken.server, bytes(LARGEST_FRAME + 9))
    assert int.from_bytes(sealed[3:5]) + 5 == len(sealed)


@pytest.mark.parametrize("error", [SSL.ZeroReturnError(), SSL.SysCallError(-1, "Unexpected EOF")])
def test_nothing_is_sealed_for_a_client_that_has_ended_its_tls(error: SSL.Error) -> None:
    def refuse(data: bytes) -> None:
        raise error

    ended = SimpleNamespace(sendall=refuse)
    assert seal(ended, b"late") == b""  # type: ignore[arg-type]  # OpenSSL says so at moments of its own
