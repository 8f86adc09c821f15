"""Pieces of the hub's own answers that go to a client at once: frames in TLS records of their own, or chunks."""

from __future__ import annotations

import asyncio

import pytest

from addons.requests.answers import ClientStream
from addons.server.clients.http2_client import LARGEST_FRAME
from tests.addons.support.answering import CLIENT_WINDOW, REQUEST, Answering, answer_here
from tests.addons.support.lasting_parts import connected
from tests.addons.support.proxied import Raw, watching_proxy
from tests.hub.support.http2 import Streams


async def test_pieces_of_outlet_and_stream_come_in_order_and_addons_see_each() -> None:
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


async def test_a_piece_beyond_the_window_waits_and_is_not_overtaken() -> None:
    full_frame = bytes(LARGEST_FRAME)
    refused, opened = asyncio.Event(), asyncio.Event()
    sent: list[int] = []

    async def write(stream: ClientStream) -> None:
        outlet = stream.outlet
        assert outlet is not None
        while outlet(full_frame):
            sent.append(len(full_frame))
        writing = asyncio.create_task(stream.write(full_frame))
        await asyncio.sleep(0)
        left = CLIENT_WINDOW - sum(sent)
        assert left < len(full_frame)
        assert not outlet(b"x"), "a piece waits for the window"
        refused.set()
        await opened.wait()
        await writing
        assert outlet(b"last")

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
async def test_a_client_of_http1_gets_chunks_or_a_body_that_ends_with_the_connection(
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
        assert stream.outlet is not None
        assert stream.outlet(b"nobody reads this")
        await stream.write(b"nor this")

    with watching_proxy() as proxy:
        answer_here(proxy, Answering(write))
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(REQUEST.replace(b"GET", b"HEAD").replace(b"1.1", b"1.0"))
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("is_h2", [False, True])
async def test_a_socket_that_is_full_gets_nothing(is_h2: bool) -> None:
    refused = asyncio.Event()

    async def write(stream: ClientStream) -> None:
        outlet = stream.outlet
        assert outlet is not None
        served = proxy.layer
        served.pause_writing()
        assert not outlet(b"x")
        served.resume_writing()
        assert outlet(b"y")
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
        assert stream.outlet is not None
        assert stream.outlet(bytes(LARGEST_FRAME + 1))
        assert stream.outlet(b"x")

    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(write))
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == LARGEST_FRAME + 2
