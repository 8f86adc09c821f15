"""Memory bounds for clients that do not read, or that send during an open watch. All bytes that the layers produce for
one event are sent in one write, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.server.clients.client_connection import ClientConnection
from addons.server.clients.http2_client import STREAM_WINDOW
from addons.server.limits import client_addresses
from addons.server.limits.client_addresses import STREAM_UNREAD
from addons.server.relay import LARGEST_WINDOW
from addons.telemetry import metrics
from tests.addons.support.lasting_parts import ask, connected, watch
from tests.addons.support.observed import value_of
from tests.addons.support.proxied import (
    ANSWER,
    FROM_NODE,
    Endless,
    Http2Server,
    Proxy,
    Raw,
    settled,
    watching_proxy,
)
from tests.hub.support.http2 import Streams

CLIENT_WINDOW = 65_535
"""The initial HTTP/2 window, unless a client sets another one."""
MUCH = 4 * STREAM_WINDOW


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with watching_proxy() as made:
        yield made


async def test_a_server_is_paused_for_an_http2_client_that_does_not_read() -> None:
    # Bytes that asyncio reads from a server in one call.
    server_read = 256 * 1024
    # An upper bound of the bytes in the socket buffers between the server and mitmproxy.
    sockets = 32 * 2**20
    server = Endless()
    async with connected(server) as (proxy, streams):
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await settled(server) < sockets
        assert 0 < proxy.layer.unread < STREAM_UNREAD + 2 * server_read
        streams.cancel(stream)
        async with asyncio.timeout(10):
            await server.ended.wait()


async def test_an_http2_server_is_paused_on_one_stream_and_no_slow_client_is_reset() -> None:
    server = Http2Server(100)
    before = value_of(metrics.UNREAD_STREAMS)
    async with server.serve(), connected(server) as (proxy, streams):
        streams.widen(MUCH)
        slow, quick = await watch(streams, 2)
        streams.reads = streams.keep = False
        server.tell_much(0, 1, MUCH)
        sent = await settled(server)
        assert sent < LARGEST_WINDOW + STREAM_UNREAD + CLIENT_WINDOW
        assert STREAM_UNREAD / 2 < proxy.layer.unread <= LARGEST_WINDOW
        server.tell(0, 3, b"news")
        await streams.until(lambda: streams.received[quick] == len(b"servernews"))
        streams.reads = True
        streams.take(slow)
        await streams.until(lambda: streams.received[slow] == len(b"server") + MUCH)
        assert not streams.ended
    assert value_of(metrics.UNREAD_STREAMS) == before


async def test_an_http2_client_is_paused_on_one_stream_for_a_server_that_does_not_read() -> None:
    server = Http2Server(100)
    server.reads = False
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_request_streamed = True
        upload = streams.send(
            {":method": "POST", ":path": "/watch", ":scheme": "https", ":authority": "hub"}, end=False
        )
        sent = await streams.pour(upload)
        assert sent < STREAM_WINDOW + STREAM_UNREAD + CLIENT_WINDOW
        assert await ask(streams) == 200


async def test_unread_responses_of_all_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, the stream with the most unread data is reset."""
    monkeypatch.setattr(client_addresses, "MAX_UNREAD", 2 * STREAM_WINDOW)
    monkeypatch.setattr(client_addresses, "FAIR_UNREAD", STREAM_WINDOW)
    server = Http2Server(100)
    before = value_of(metrics.UNREAD_STREAMS)
    async with server.serve(), connected(server) as (proxy, streams):
        opened = await watch(streams, 16)
        streams.reads = False
        for number in range(len(opened)):
            server.tell_much(0, 2 * number + 1, MUCH)
        await streams.until(lambda: bool(streams.ended))
        assert await settled(server)
        assert proxy.layer.unread <= 2 * STREAM_WINDOW
        assert len(streams.ended) < 16
    assert value_of(metrics.UNREAD_STREAMS) == before + len(streams.ended)


async def test_a_reading_client_is_not_reset_for_a_slow_one_at_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next client at the address to get data once lost a stream: a component, because a user had suspended a
    program."""
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        stopped = await watch(streams, 4)
        streams.reads = False
        for number in range(len(stopped)):
            server.tell_much(0, 2 * number + 1, MUCH)
        await settled(server)
        monkeypatch.setattr(client_addresses, "MAX_UNREAD", proxy.layer.address.unread)
        monkeypatch.setattr(client_addresses, "FAIR_UNREAD", 0)
        other = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
        (read,) = await watch(other, 1)
        other.reads = False
        server.tell_much(0, 2 * len(stopped) + 1, CLIENT_WINDOW + 1000)
        await streams.until(lambda: bool(streams.ended))
        other.reads = True
        other.take(read)
        await other.until(lambda: other.received[read] == len(b"server") + CLIENT_WINDOW + 1000)
        assert not other.ended
        await other.close()


async def test_a_client_that_keeps_sending_during_a_watch_is_closed(proxy: Proxy[Raw]) -> None:
    async def write_on(writer: asyncio.StreamWriter) -> None:
        """Write until the hub accepts no more."""
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    before = value_of(metrics.CONNECTIONS_REFUSED.labels("ahead"))
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        with pytest.raises(ConnectionError):
            await write_on(writer)
    assert value_of(metrics.CONNECTIONS_REFUSED.labels("ahead")) == before + 1


@pytest.fixture
def answering() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()):
        yield Proxy(Raw(ANSWER), Raw(FROM_NODE))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return all writes of the hub to a client's socket."""
    pieces: list[bytes] = []
    flush = ClientConnection.flush

    def note(self: ClientConnection) -> None:
        if self._output:
            pieces.append(b"".join(self._output))
        flush(self)

    monkeypatch.setattr(ClientConnection, "flush", note)
    return pieces


async def test_a_response_head_and_its_body_are_sent_in_one_write(
    answering: Proxy[Raw], sent: list[bytes]
) -> None:
    async with answering.serve(), asyncio.timeout(20):
        answer = await answering.ask(b"GET http://hub/api HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert answer.lower() == ANSWER.lower().replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert answer in sent
