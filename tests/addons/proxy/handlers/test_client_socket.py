"""What a real mitmproxy holds for clients that do not read, or send behind an open watch, is bounded.

All bytes that the layers write for one event go out in one write, and none is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.proxy.handlers.client_socket import LARGEST_READ, GatheringWriter, PausingReader
from addons.proxy.http import client_addresses
from addons.proxy.http.http_connections import STREAM_UNREAD, STREAM_WINDOW
from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.server_side import LARGEST_WINDOW
from addons.telemetry import metrics
from tests.addons.support.lasting_parts import ask, connected, watch
from tests.addons.support.observed import value_of
from tests.addons.support.proxied import ANSWER, FROM_NODE, Endless, Http2Server, Proxy, Raw, watching_proxy
from tests.hub.support.http2 import Streams

SOCKETS = 32 * 2**20
"""Bytes that the sockets' buffers between the server and mitmproxy may take, generously."""
CLIENT_WINDOW = 65_535
"""As HTTP/2 has it unless a client says otherwise."""
SERVER_READ = 256 * 1024
"""Bytes that asyncio reads from a server at once."""
MUCH = 4 * STREAM_WINDOW


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with watching_proxy() as made:
        yield made


async def settled(sent: Endless | Http2Server) -> int:
    """What a server has sent, when it cannot send any more."""
    before = -1
    while sent.sent != before:
        before = sent.sent
        await asyncio.sleep(0.3)
    return before


def layer_of(proxy: Proxy[Any]) -> HubHttpLayer:
    layer = proxy.handlers[0].layer
    assert isinstance(layer, HubHttpLayer)
    return layer


async def test_a_server_waits_for_a_client_of_http2_that_does_not_read() -> None:
    server = Endless()
    async with connected(server) as (proxy, streams):
        streams.reads = False
        stream = streams.get("/watch", {})
        await streams.until(lambda: streams.received[stream] > 0)
        assert await settled(server) < SOCKETS
        assert STREAM_UNREAD <= layer_of(proxy).unread < STREAM_UNREAD + 2 * SERVER_READ
        streams.cancel(stream)
        async with asyncio.timeout(10):
            await server.ended.wait()


async def test_a_server_of_http2_waits_on_that_stream_alone_and_no_slow_client_is_reset() -> None:
    server = Http2Server(100)
    before = value_of(metrics.UNREAD_STREAMS)
    async with server.serve(), connected(server) as (proxy, streams):
        streams.widen(MUCH)
        slow, quick = await watch(streams, 2)
        streams.reads = streams.keep = False
        server.tell_much(0, 1, MUCH)
        sent = await settled(server)
        assert sent < LARGEST_WINDOW + STREAM_UNREAD + CLIENT_WINDOW
        assert STREAM_UNREAD / 2 < layer_of(proxy).unread <= LARGEST_WINDOW
        server.tell(0, 3, b"news")
        await streams.until(lambda: streams.received[quick] == len(b"servernews"))
        streams.reads = True
        streams.take(slow)
        await streams.until(lambda: streams.received[slow] == len(b"server") + MUCH)
        assert not streams.ended
    assert value_of(metrics.UNREAD_STREAMS) == before


async def test_an_http2_client_waits_on_one_stream_for_a_server_that_does_not_read() -> None:
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


async def test_what_all_clients_leave_unread_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that holds most is reset."""
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
        assert layer_of(proxy).unread <= 2 * STREAM_WINDOW
        assert len(streams.ended) < 16
    assert value_of(metrics.UNREAD_STREAMS) == before + len(streams.ended)


async def test_a_client_that_reads_loses_nothing_for_one_at_its_address_that_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever was sent something next lost a stream: a component, where a person had stopped a program."""
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        stopped = await watch(streams, 4)
        streams.reads = False
        for number in range(len(stopped)):
            server.tell_much(0, 2 * number + 1, MUCH)
        await settled(server)
        monkeypatch.setattr(client_addresses, "MAX_UNREAD", layer_of(proxy).address.unread)
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


@asynccontextmanager
async def filled_reader() -> AsyncIterator[tuple[Endless, asyncio.StreamReader]]:
    """A reader that holds as much as it may of what a server sends without end."""
    server = Endless()
    async with server.serve():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await settled(server)
        yield server, reader
        writer.transport.abort()
        await server.ended.wait()


async def test_a_reader_that_waited_holds_no_more_than_before() -> None:
    """asyncio's reader has paused its transport; who resumes it behind the reader's back has it read without end."""
    async with asyncio.timeout(20), filled_reader() as (server, reader):
        full, moved = [True], asyncio.Event()
        pausing = PausingReader(reader, lambda: full[-1], moved)
        read = asyncio.create_task(pausing.read(2 * LARGEST_READ))
        await settled(server)
        assert not read.done()
        full.append(False)
        moved.set()
        assert len(await read) == LARGEST_READ
        assert await settled(server)
        assert len(buffer_of(reader)) <= 2 * LARGEST_READ + SERVER_READ
        pausing.let_go()
        assert not buffer_of(reader)


async def test_asyncio_reads_ahead_at_most_twice_what_is_read_at_once() -> None:
    server = Endless()
    async with asyncio.timeout(20), server.serve():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        PausingReader(reader, lambda: False, asyncio.Event())
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await settled(server)
        assert LARGEST_READ < len(buffer_of(reader)) <= 2 * LARGEST_READ
        writer.transport.abort()
        await server.ended.wait()


async def test_asyncio_reads_no_further_while_there_is_no_room() -> None:
    server = Endless()
    async with asyncio.timeout(20), server.serve():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        pausing = PausingReader(reader, lambda: True, asyncio.Event())
        read = asyncio.create_task(pausing.read(LARGEST_READ))
        await asyncio.sleep(0)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await settled(server)
        assert not buffer_of(reader)
        read.cancel()
        writer.transport.abort()
        await server.ended.wait()


def buffer_of(reader: asyncio.StreamReader) -> bytearray:
    buffer = reader._buffer  # type: ignore[attr-defined]  # asyncio says so in no other way
    assert isinstance(buffer, bytearray)
    return buffer


async def test_a_client_that_sends_on_behind_a_watch_is_closed(proxy: Proxy[Raw]) -> None:
    before = value_of(metrics.CONNECTIONS_REFUSED.labels("ahead"))
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/watch HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"hello\r\n")
        with pytest.raises(ConnectionError):
            await write_on(writer)
    assert value_of(metrics.CONNECTIONS_REFUSED.labels("ahead")) == before + 1


async def write_on(writer: asyncio.StreamWriter) -> None:
    """Until the other side has enough."""
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


REQUEST = b"GET http://hub/api HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"


@pytest.fixture
def answering() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()) as context:
        yield Proxy(context.options, Raw(ANSWER), Raw(FROM_NODE))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that anybody writes to a socket, piece by piece."""
    pieces: list[bytes] = []
    write = asyncio.StreamWriter.write

    def note(self: asyncio.StreamWriter, data: bytes) -> None:
        pieces.append(bytes(data))
        write(self, data)

    monkeypatch.setattr(asyncio.StreamWriter, "write", note)
    return pieces


async def test_a_head_and_its_body_are_sent_at_once(answering: Proxy[Raw], sent: list[bytes]) -> None:
    async with answering.serve(), asyncio.timeout(20):
        answer = await answering.ask(REQUEST)
    assert answer.lower() == ANSWER.lower()
    assert answer in sent


async def test_mitmproxy_itself_sends_them_one_after_the_other(
    answering: Proxy[Raw], sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When this fails, writes need not be gathered any longer."""
    monkeypatch.setattr(GatheringWriter, "write", lambda self, data: self._writer.write(data))
    async with answering.serve(), asyncio.timeout(20):
        answer = await answering.ask(REQUEST)
    head, _, body = answer.rpartition(b"\r\n\r\n")
    assert {head + b"\r\n\r\n", body} <= set(sent)


class Written:
    """Notes what a stream writer is asked to do."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.closing = False
        self._protocol = SimpleNamespace(_closed=SimpleNamespace(add_done_callback=id))

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def write_eof(self) -> None:
        self.done.append("eof")

    def close(self) -> None:
        self.closing = True
        self.done.append("close")


@pytest.mark.parametrize(("end", "last"), [("close", "close"), ("write_eof", "eof")])
def test_what_is_written_goes_out_before_the_end(end: str, last: str) -> None:
    raw = Written()
    writer = GatheringWriter(raw)  # type: ignore[arg-type]  # it has all that is called
    writer.write(b"a")
    writer.write(b"b")
    assert raw.done == []
    getattr(writer, end)()
    writer.flush()
    assert raw.done == [b"ab", last]
    assert writer.is_closing() is raw.closing


def test_nothing_is_written_to_what_is_closed() -> None:
    raw = Written()
    writer = GatheringWriter(raw)  # type: ignore[arg-type]  # it has all that is called
    writer.write(b"a")
    raw.close()
    writer.flush()
    assert raw.done == ["close"]
