"""A wire between a socket and a protocol: TLS in both directions, its ends, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from addons.link.drills import DrillKind, Drills
from addons.link.health import ServerHealth
from addons.link.servers import parse_server
from addons.link.tls import UpstreamTls
from addons.link.wire import MAX_READ, Wire, connect
from tests.addons.support.link_parts import credentials, server_context
from tests.addons.support.observed import until

type Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


class Reader(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.got = b""
        self.has_ended = False
        self.lost: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> None:
        self.has_ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


@asynccontextmanager
async def wired(
    folder: Path, serve: Serve, *, tls: bool = True, drills: Drills | None = None
) -> AsyncIterator[tuple[Wire, Reader, ServerHealth]]:
    """A wire to a server that serves so, with a reader; and what is known of the server."""
    context = server_context(folder) if tls else None
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)  # type: ignore[arg-type]  # either kind
    port = server.sockets[0].getsockname()[1]
    health = ServerHealth(parse_server(f"https://127.0.0.1:{port}"))
    ssl_conn = (
        UpstreamTls(credentials()).connection("127.0.0.1", lend_certificate=True, alpn=[b"h2"])
        if tls
        else None
    )
    wire = await connect(ssl_conn, drills, health)
    await wire.secured()
    reader = Reader()
    wire.speak(reader)
    async with server:
        yield wire, reader, health
        wire.abort()
        await until(lambda: reader.lost)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("tls", [True, False])
async def test_what_is_written_comes_back(tmp_path: Path, tls: bool) -> None:
    sent = bytes(range(256)) * 4096
    async with wired(tmp_path, echo, tls=tls) as (wire, reader, health):
        wire.write(b"")
        wire.write(sent)
        await until(lambda: len(reader.got) == len(sent))
        assert (reader.got, health.connections) == (sent, 1)
    assert health.connections == 0
    assert wire.is_closing()
    wire.write(b"too late")


@pytest.mark.parametrize("tls", [True, False])
async def test_a_protocol_that_reads_no_further_gets_the_rest_later(tmp_path: Path, tls: bool) -> None:
    size = 2**20

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await reader.read()
        writer.close()

    async with wired(tmp_path, flood, tls=tls) as (wire, reader, _):
        wire.pause_reading()
        await asyncio.sleep(0.05)
        held = len(reader.got)
        await asyncio.sleep(0.05)
        assert held == len(reader.got) < size
        wire.resume_reading()
        await until(lambda: len(reader.got) == size)


@pytest.mark.parametrize("tls", [True, False])
async def test_what_is_handled_in_one_go_is_bounded(
    tmp_path: Path, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, take = list[int](), Wire.data_received

    def note(wire: Wire, data: bytes) -> None:
        sizes.append(len(data))
        take(wire, data)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(2**22))
        await reader.read()
        writer.close()

    monkeypatch.setattr(Wire, "data_received", note)
    async with wired(tmp_path, flood, tls=tls) as (_, reader, _health):
        await until(lambda: len(reader.got) == 2**22)
    assert max(sizes) == MAX_READ


@pytest.mark.parametrize("tls", [True, False])
async def test_the_servers_end_is_told(tmp_path: Path, tls: bool) -> None:
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    async with wired(tmp_path, greet, tls=tls) as (_, reader, _health):
        await until(lambda: reader.lost)
        assert (reader.got, reader.has_ended) == (b"bye", True)


async def test_an_end_without_a_word_of_tls_is_no_end_of_a_body(tmp_path: Path) -> None:
    """Whoever is on the way can cut a connection."""

    def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with wired(tmp_path, cut) as (_, reader, _health):
        await until(lambda: reader.lost)
        assert not reader.has_ended


async def test_a_peer_that_speaks_no_tls_is_an_error(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ssl_conn = UpstreamTls(credentials()).connection("127.0.0.1", lend_certificate=True, alpn=[b"h2"])
    async with server:
        wire = await connect(ssl_conn, None, ServerHealth(parse_server(f"https://127.0.0.1:{port}")))
        with pytest.raises(ConnectionError):
            await wire.secured()
        await until(wire.is_closing)
        await asyncio.sleep(0)


async def test_a_drill_that_takes_the_link_away_breaks_what_comes(tmp_path: Path) -> None:
    drills = Drills(lambda: None)
    async with wired(tmp_path, echo, drills=drills) as (wire, reader, _):
        drills.begin(DrillKind.OFFLINE)
        wire.write(b"lost")
        await until(lambda: reader.lost)
        assert isinstance(reader.lost[0], ConnectionResetError)
        assert reader.got == b""
    drills.close()


async def test_a_slow_link_loses_nothing(tmp_path: Path) -> None:
    drills = Drills(lambda: None)
    sent = bytes(range(256)) * 64
    async with wired(tmp_path, echo, drills=drills) as (wire, reader, _):
        drills.begin(DrillKind.SLOW, kbps=10_000, ms=1)
        wire.write(sent)
        await until(lambda: len(reader.got) == len(sent))
        assert reader.got == sent
    drills.close()
