"""The hub's own responses as streams to HTTP/1.1 and HTTP/2 clients."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import pytest

from addons.requests.answers import ClientLeft, ClientStream
from addons.server.clients import client_connection
from addons.server.clients.client_connection import MAX_UNWRITTEN
from addons.server.clients.http2_client import DATA_FRAME_SIZE
from addons.server.limits import client_addresses
from addons.server.limits.client_addresses import STREAM_UNREAD
from tests.addons.support.answering import CLIENT_WINDOW, REQUEST, Answering, answer_here
from tests.addons.support.lasting_parts import connected
from tests.addons.support.proxied import Raw, watching_proxy
from tests.hub.support.http2 import Streams

PIECE = bytes(32 * 1024)
MUCH = 2_000
"""A number of pieces that exceeds all socket buffers."""


async def three(stream: ClientStream) -> None:
    await stream.write_all([b"one ", b"two "])
    await asyncio.sleep(0)
    await stream.write(b"three")


async def test_mitmproxy_addons_get_a_buffered_response_complete() -> None:
    answering = Answering(three)
    with watching_proxy() as proxy:
        proxy.is_streamed = False
        answer_here(proxy, answering)
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    response = answering.flows[0].response
    assert response is not None
    assert response.raw_content == b"one two three"
    assert b"one two three" in answer


async def test_the_response_waits_for_addons_that_process_its_head() -> None:
    answering = Answering(three)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        proxy.hook_delay = 0.05
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len("one two three")


class Writing:
    """Write a number of pieces, and count them."""

    def __init__(self, pieces: int = MUCH) -> None:
        self.written = 0
        self._pieces = pieces

    async def __call__(self, stream: ClientStream) -> None:
        for _ in range(self._pieces):
            await stream.write(PIECE)
            self.written += len(PIECE)

    async def settled(self) -> int:
        """Wait until nothing more can be written; return the number of written bytes."""
        before = -1
        while self.written != before:
            before = self.written
            await asyncio.sleep(0.3)
        return before


async def test_a_response_waits_for_a_slow_http2_client_and_ends_with_its_stream() -> None:
    writing = Writing()
    answering = Answering(writing)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await writing.settled() <= CLIENT_WINDOW + STREAM_UNREAD + len(PIECE)
        streams.cancel(stream)
        await answering.over.wait()


async def test_a_response_continues_when_its_http2_client_reads_again() -> None:
    writing = Writing(50)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(writing))
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await writing.settled() < 50 * len(PIECE)
        streams.reads = True
        streams.take(stream)
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == 50 * len(PIECE)


async def test_a_response_waits_for_a_slow_http1_client_and_ends_with_its_connection() -> None:
    writing = Writing()
    answering = Answering(writing)
    with watching_proxy() as proxy:
        answer_here(proxy, answering)
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            assert await writing.settled() < MUCH * len(PIECE)
            writer.transport.abort()
            await answering.over.wait()


async def test_pending_data_for_a_client_is_bounded_by_its_socket() -> None:
    """100 clients that did not read their lists once made the hub hold 20 MB, twice the limit of their sockets."""

    class Counted(bytes):
        """A piece that counts its instances."""

        alive = 0

        def __new__(cls, size: int) -> Counted:
            cls.alive += 1
            return super().__new__(cls, size)

        def __del__(self) -> None:
            type(self).alive -= 1

    answering = Answering(lambda stream: stream.write_all(Counted(len(PIECE)) for _ in range(MUCH)))
    with watching_proxy() as proxy:
        answer_here(proxy, answering)
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            handler, before = proxy.handlers[0], -1
            while handler.unwritten == 0 or handler.unwritten != before:
                before = handler.unwritten
                await asyncio.sleep(0.2)
            pieces = Counted.alive
            writer.transport.abort()
            await answering.over.wait()
    assert before <= MAX_UNWRITTEN + len(PIECE) + 100
    assert pieces == 0


async def test_a_disconnect_during_a_write_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    left = asyncio.Event()

    async def late(stream: ClientStream) -> None:
        await left.wait()
        await stream.write(b"more")

    answering = Answering(late)
    with watching_proxy() as proxy:
        answer_here(proxy, answering)
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST)
            await reader.readuntil(b"\r\n\r\n")
            # The write runs in the loop iteration that resets the connection, before the hub is notified.
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.transport.abort()
            left.set()
            await answering.over.wait()
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_writing_to_an_ended_stream_raises() -> None:
    answering, taken = Answering(three), []

    async def keep(stream: ClientStream) -> None:
        taken.append(stream)

    answering.write = keep
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        with pytest.raises(ClientLeft):
            await taken[0].write(b"late")


async def test_a_slow_client_gets_all_of_many_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """250 watches of 20 KB each exceeded the bound of unread data, so some were once reset."""
    monkeypatch.setattr(client_addresses, "FAIR_UNREAD", 8 * len(PIECE))
    monkeypatch.setattr(client_connection, "FAIR_UNREAD", 8 * len(PIECE))
    monkeypatch.setattr(client_addresses, "MAX_UNREAD", 16 * len(PIECE))

    async def write(stream: ClientStream) -> None:
        await stream.write(PIECE)
        await asyncio.Event().wait()

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        streams.reads = False
        opened = [streams.get("/watch", {}) for _ in range(50)]
        await streams.until(lambda: all(each in streams.status for each in opened))
        streams.reads = True
        for each in opened:
            streams.take(each)
        await streams.until(lambda: all(streams.received[each] == len(PIECE) for each in opened))
        assert not streams.ended


# -- pieces on the fast path ---------------------------------------------------------------------------------------


async def test_pieces_of_fast_path_and_stream_arrive_in_order_and_reach_addons() -> None:
    counted: list[bytes] = []

    def count(chunk: bytes) -> bytes:
        counted.append(chunk)
        return chunk

    async def write(stream: ClientStream) -> None:
        response = answering.flows[0].response
        assert response is not None
        response.stream = count
        try_write = stream.try_write
        assert try_write is not None
        for text in (b"one ", b"three "):
            assert try_write(text)
            await stream.write(b"two ")
        assert try_write(b"four")

    answering = Answering(write)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len("one two three two four")
    assert counted == [b"one ", b"two ", b"three ", b"two ", b"four", b""]


async def test_a_piece_beyond_the_window_waits_and_keeps_its_order() -> None:
    full_frame = bytes(DATA_FRAME_SIZE)
    refused, opened = asyncio.Event(), asyncio.Event()
    sent: list[int] = []

    async def write(stream: ClientStream) -> None:
        try_write = stream.try_write
        assert try_write is not None
        while try_write(full_frame):
            sent.append(len(full_frame))
        writing = asyncio.create_task(stream.write(full_frame))
        await asyncio.sleep(0)
        left = CLIENT_WINDOW - sum(sent)
        assert left < len(full_frame)
        assert not try_write(b"x"), "a piece waits for the window"
        refused.set()
        await opened.wait()
        await writing
        assert try_write(b"last")

    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(write))
        streams.reads = False
        stream = streams.get("/watch", {})
        await refused.wait()
        await streams.until(lambda: streams.received[stream] == CLIENT_WINDOW)
        streams.reads = True
        streams.take(stream)
        await streams.until(lambda: streams.received[stream] == sum(sent) + len(full_frame))
        opened.set()
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == sum(sent) + len(full_frame) + len("last")


async def test_a_stream_cancelled_by_its_client_accepts_no_piece() -> None:
    async def write(stream: ClientStream) -> None:
        try_write = stream.try_write
        assert try_write is not None
        await stream.write(b"begun")
        try:
            await asyncio.Event().wait()  # until the end of the stream cancels this task
        finally:
            answers.append(try_write(b"late"))

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
async def test_an_http1_client_gets_chunks_or_a_body_delimited_by_the_close(
    version: bytes, body: bytes
) -> None:
    async def write(stream: ClientStream) -> None:
        try_write, response = stream.try_write, answering.flows[0].response
        assert try_write is not None
        assert try_write(b"whole")
        assert response is not None
        response.stream = lambda _: b""
        assert try_write(b"that an addon takes away")
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


async def test_a_head_request_gets_no_piece() -> None:
    async def write(stream: ClientStream) -> None:
        assert stream.try_write is not None
        assert stream.try_write(b"nobody reads this")
        await stream.write(b"nor this")

    with watching_proxy() as proxy:
        answer_here(proxy, Answering(write))
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(REQUEST.replace(b"GET", b"HEAD").replace(b"1.1", b"1.0"))
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("is_h2", [False, True])
async def test_a_full_socket_gets_no_piece_on_the_fast_path(is_h2: bool) -> None:
    refused = asyncio.Event()

    async def write(stream: ClientStream) -> None:
        try_write = stream.try_write
        assert try_write is not None
        served = proxy.layer
        served.pause_writing()
        assert not try_write(b"x")
        served.resume_writing()
        assert try_write(b"y")
        refused.set()

    with watching_proxy() as proxy:
        answer_here(proxy, Answering(write))
        async with proxy.serve(is_h2=is_h2), asyncio.timeout(20):
            if is_h2:
                streams = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
                stream = streams.get("/watch", {})
                await streams.until(lambda: stream in streams.ended)
                assert streams.bodies[stream] == b"y"
                await streams.close()
            else:
                answer = await proxy.ask(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                assert answer.endswith(b"1\r\ny\r\n0\r\n\r\n")
    assert refused.is_set()


async def test_a_piece_beyond_a_frame_is_split_and_keeps_its_order() -> None:
    async def write(stream: ClientStream) -> None:
        assert stream.try_write is not None
        assert stream.try_write(bytes(DATA_FRAME_SIZE + 1))
        assert stream.try_write(b"x")

    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(write))
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == DATA_FRAME_SIZE + 2
