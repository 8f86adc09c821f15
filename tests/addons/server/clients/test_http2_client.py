"""The frames that an HTTP/2 client gets, and the ends of its streams."""

from __future__ import annotations

import asyncio

import pytest
from hpack import Encoder
from hyperframe.frame import HeadersFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from addons.requests.answers import ClientStream
from addons.server.clients.http2_client import STREAM_OVERHEAD, STREAMS_PER_CLIENT
from addons.server.limits import http2_frames
from addons.server.messages import refuse
from kube.errors import unauthorized
from tests.addons.support.answering import Answering, answer_here
from tests.addons.support.lasting_parts import ask, connected
from tests.addons.support.observed import until
from tests.addons.support.proxied import ANSWER, Raw
from tests.hub.support.http2 import Streams
from tests.support.cpu_time import own_seconds


async def test_the_stream_limit_is_announced_to_an_http2_client() -> None:
    async with connected(Raw(ANSWER)) as (_, streams):
        assert await streams.limit() == STREAMS_PER_CLIENT


async def test_window_updates_cost_one_pass_over_the_waiting_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 900 responses waiting for a window, 1,000 frames of 13 bytes once took 0.9 s of the loop."""
    monkeypatch.setattr(http2_frames, "REQUESTS_PER_STEP", 10_000)
    many = 300

    async def write(stream: ClientStream) -> None:
        await stream.write(b"x" * 100)
        await asyncio.Event().wait()

    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(write))
        streams.say(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize())
        for _ in range(many):
            streams.get("/watch", {})
        await until(lambda: bool(proxy.handlers) and proxy.handlers[0].served is not None)
        layer = proxy.layer
        await until(lambda: layer.count == many)
        assert layer.unread <= many * (100 + STREAM_OVERHEAD)
        wider = WindowUpdateFrame(0, window_increment=1).serialize() * 100
        narrow = SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize() * 100
        assert own_seconds(lambda: layer.data_received(wider + narrow)) < 0.2


@pytest.mark.parametrize("waits", [False, True])
async def test_a_stream_ends_with_its_response_even_if_the_request_has_no_end(waits: bool) -> None:
    """27,000 unauthenticated requests with endless bodies once left 36 MB in the hub after their responses."""
    async with connected(Raw(ANSWER)) as (proxy, streams):
        proxy.decide = lambda flow: refuse(flow, unauthorized("no"))
        assert await ask(streams) == 401
        if waits:
            streams.say(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 0}).serialize())
        fields = {":method": "POST", ":path": "/", ":scheme": "http", ":authority": "hub"}
        stream = streams.send(fields, end=False)
        await streams.until(lambda: stream in streams.status)
        if waits:
            assert stream not in streams.ended
            streams.say(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 65_535}).serialize())
        await streams.until(lambda: stream in streams.ended)
        await until(lambda: not proxy.layer.count)


async def test_requests_cancelled_in_the_same_packet_do_not_affect_others() -> None:
    """HEADERS and RST_STREAM arrive in one packet: h2 has closed the stream before the hub handles its request."""
    async with connected(Raw(ANSWER, available=True)) as (proxy, streams):
        watched = streams.get("/", {})
        await streams.until(lambda: watched in streams.ended)
        fields = [(":method", "GET"), (":path", "/"), (":scheme", "http"), (":authority", "hub")]
        block = Encoder().encode(fields)
        first = watched + 2
        packet = b"".join(
            HeadersFrame(number, block, flags=["END_HEADERS", "END_STREAM"]).serialize()
            + RstStreamFrame(number, error_code=8).serialize()
            for number in range(first, first + 40, 2)
        )
        proxy.layer.data_received(packet)
        await until(lambda: not proxy.layer.count)
        other = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
        assert await ask(other) == 200
        await other.close()


async def test_a_client_with_expect_100_continue_gets_a_100() -> None:
    async with connected(Raw(ANSWER)) as (_, streams):
        fields = {":method": "POST", ":path": "/", ":scheme": "http", ":authority": "hub"}
        stream = streams.send({**fields, "expect": "100-continue"}, end=False)
        streams.more(stream, b"body", end=True)
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == 200
