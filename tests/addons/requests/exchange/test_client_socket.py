"""What is read from a client's socket waits for room, and what is written to it goes out at once."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from addons.requests.exchange.client_addresses import ClientAddress, ListenerClients
from addons.requests.exchange.client_socket import (
    LARGEST_READ,
    VANISHED,
    GatheringWriter,
    PausingReader,
    end_with_its_peer,
)
from tests.addons.support.proxied import Endless, settled

FIRST = ClientAddress(ListenerClients())
"""The clients of an address for whose turns nobody else asks."""


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
        full, moved, held = [True], asyncio.Event(), len(buffer_of(reader))
        pausing = PausingReader(reader, lambda: full[-1], moved, FIRST)
        read = asyncio.create_task(pausing.read(2 * LARGEST_READ))
        await settled(server)
        assert not read.done()
        full.append(False)
        moved.set()
        assert len(await read) == LARGEST_READ
        assert await settled(server)
        assert len(buffer_of(reader)) <= held
        pausing.let_go()
        assert not buffer_of(reader)


async def test_asyncio_reads_ahead_at_most_twice_what_is_read_at_once() -> None:
    server = Endless()
    async with asyncio.timeout(20), server.serve():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        PausingReader(reader, lambda: False, asyncio.Event(), FIRST)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await settled(server)
        assert LARGEST_READ < len(buffer_of(reader)) <= 2 * LARGEST_READ
        writer.transport.abort()
        await server.ended.wait()


async def test_asyncio_reads_no_further_while_there_is_no_room() -> None:
    server = Endless()
    async with asyncio.timeout(20), server.serve():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        pausing = PausingReader(reader, lambda: True, asyncio.Event(), FIRST)
        read = asyncio.create_task(pausing.read(LARGEST_READ))
        await asyncio.sleep(0)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await settled(server)
        assert not buffer_of(reader)
        read.cancel()
        writer.transport.abort()
        await server.ended.wait()


async def test_what_many_clients_have_sent_is_handled_in_as_many_rounds_of_the_loop() -> None:
    address = ClientAddress(ListenerClients())
    handled: list[int] = []

    async def read(number: int) -> None:
        reader = asyncio.StreamReader()
        reader.set_transport(cast(asyncio.Transport, SimpleNamespace()))
        reader.feed_data(b"x")
        await PausingReader(reader, lambda: False, asyncio.Event(), address).read(1)
        handled.append(number)

    reads = [asyncio.create_task(read(number)) for number in range(5)]
    before = 0
    while len(handled) < len(reads):
        await asyncio.sleep(0)
        assert len(handled) <= before + 1
        before = len(handled)


def buffer_of(reader: asyncio.StreamReader) -> bytearray:
    buffer = reader._buffer  # type: ignore[attr-defined]  # asyncio says so in no other way
    assert isinstance(buffer, bytearray)
    return buffer


class Written:
    """Notes what a stream writer is asked to do."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.closing = False
        self.transport = SimpleNamespace(set_write_buffer_limits=id)
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


@pytest.mark.skipif(sys.platform != "linux", reason="these options are Linux's")
def test_a_connection_whose_other_end_vanished_ends_in_a_minute() -> None:
    with socket.socket() as conn:
        end_with_its_peer(conn)
        idle, every = (
            conn.getsockopt(socket.IPPROTO_TCP, each) for each in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        )
        assert conn.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle + every < VANISHED
        assert conn.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == VANISHED * 1000
