"""The connection to a server through a proxy's tunnel, and its byte counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from addons.link.drills import DrillKind, Drills
from addons.link.health import ServerHealth
from addons.link.servers import Server, parse_server
from addons.link.tls import UpstreamTls
from addons.link.upstream_transport import MAX_READ, ServerTls, UpstreamTransport, connect
from kube.http.kubeconfig import Credentials
from kube.http.proxies import parse_proxy
from tests.addons.support.link_parts import AUTHORITY, answer, credentials, linked, server_context
from tests.addons.support.observed import until
from tests.cloud.connect_proxy import ConnectProxy
from tests.kube.support.http2_peer import Peer

SERVER = parse_server("https://cloud.example:6443")
"""A name that only the proxy can resolve; `credentials` expect another name in the server's certificate."""
REFUSES = b"HTTP/1.1 403 Forbidden\r\n\r\n"


def port_of(peer: Peer) -> int:
    return parse_server(peer.url).port


def credentials_with(**changed: Any) -> Credentials:
    """Return the credentials with changed fields of the cluster."""
    own = credentials()
    return replace(own, cluster=replace(own.cluster, **changed))


def credentials_through(proxy: ConnectProxy, url: str = "") -> Credentials:
    return credentials_with(server_name="127.0.0.1", proxy=parse_proxy(url or proxy.url))


async def test_a_proxied_connection_sends_one_connect_and_uses_tls_with_the_server(
    tmp_path: Path,
) -> None:
    peer = Peer(answer)
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer)) as proxy,
    ):
        world.connect(SERVER, credentials_through(proxy))
        assert [await world.ask(f"/{number}") for number in range(3)] == [b"of /0", b"of /1", b"of /2"]
        assert proxy.asked == ["CONNECT cloud.example:6443 HTTP/1.1\r\nHost: cloud.example:6443\r\n\r\n"]
        assert world.health.connections == 1
        assert world.link.cut(SERVER) == 1
        await until(lambda: world.health.connections == 0)


async def test_the_proxy_gets_its_credentials_and_the_server_does_not(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer), authorization="Basic dTpwdw==") as proxy,
    ):
        world.connect(SERVER, credentials_through(proxy))
        with pytest.raises(ConnectionError, match=r"refuses: 407 Proxy Authentication Required$"):
            await world.ask()
        world.connect(SERVER, credentials_through(proxy, f"http://u:pw@127.0.0.1:{proxy.port}"))
        assert await world.ask() == b"of /x"
        assert "proxy-authorization" not in peer.asked[0].fields


async def test_a_proxy_may_use_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_bytes(AUTHORITY.certificate)
    peer, context = Peer(answer), server_context(tmp_path, alpn=("http/1.1",))
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer), tls=context) as proxy,
    ):
        world.connect(SERVER, credentials_through(proxy))
        with pytest.raises(OSError, match="ertificate"):
            await world.ask()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert await world.ask() == b"of /x"
        assert peer.connections == 1


@pytest.mark.parametrize(
    ("said", "message"),
    [(REFUSES, "refuses: 403"), (b"220 mail", "closed the connection"), (bytes(20_000), "HTTP")],
)
async def test_a_refusal_by_a_proxy_is_a_connection_error_with_its_response(
    tmp_path: Path, said: bytes, message: str
) -> None:
    peer = Peer(answer)
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer), answer=said) as proxy,
    ):
        world.connect(SERVER, credentials_through(proxy))
        with pytest.raises(ConnectionError, match=message):
            await world.ask()
        assert world.health.connections == 0


async def test_the_environment_sets_a_proxy_except_for_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, elsewhere = Peer(answer), parse_server("https://direct.example:6443")
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer)) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "direct.example,10.0.0.0/8")
        world.connect(SERVER, credentials_with(server_name="127.0.0.1"))
        assert await world.ask() == b"of /x"
        assert world.link.proxy(elsewhere) is None
        assert world.link.proxy(Server("https", "peer.example", 10269, "node-2")) is None
        assert world.link.proxy(Server("https", "relay.example", 10269, "relay x")) is not None
        monkeypatch.setenv("HTTPS_PROXY", "socks5://x")
        with pytest.raises(ValueError, match="the URL of the proxy"):
            world.connect(SERVER, credentials())


async def test_a_silent_proxy_times_out(tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    peer = Peer(answer)
    async with server, linked(peer, credentials(), server_context(tmp_path)) as world:
        world.connect(SERVER, credentials_with(proxy=parse_proxy(f"http://127.0.0.1:{port}")))
        asking = asyncio.create_task(world.ask())
        await until(lambda: world.link.connections._opening)
        world.link.close()
        with pytest.raises(ConnectionResetError):
            await asking


type Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


class Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.has_ended = False
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> None:
        self.has_ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


@asynccontextmanager
async def connected(
    folder: Path, serve: Serve, *, tls: bool = True, drills: Drills | None = None
) -> AsyncIterator[tuple[UpstreamTransport, Reader, ServerHealth]]:
    """Connect to a server with this handler; yield the transport, its reader and the server's health."""
    context = server_context(folder) if tls else None
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)  # type: ignore[arg-type]  # either kind
    port = server.sockets[0].getsockname()[1]
    health = ServerHealth(parse_server(f"https://127.0.0.1:{port}"))
    ssl_conn = (
        UpstreamTls(credentials()).connection("127.0.0.1", present_certificate=True, alpn=[b"h2"])
        if tls
        else None
    )
    transport = await connect(ssl_conn, drills, health)
    await transport.secured()
    reader = Reader()
    transport.start_protocol(reader)
    async with server:
        yield transport, reader, health
        transport.abort()
        await until(lambda: reader.lost)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("tls", [True, False])
async def test_an_echo_through_a_tunnel_is_complete(tmp_path: Path, tls: bool) -> None:
    sent = bytes(range(256)) * 4096
    async with connected(tmp_path, echo, tls=tls) as (_, reader, health):
        reader.transport.write(b"")
        reader.transport.write(sent)
        await until(lambda: len(reader.got) == len(sent))
        assert (reader.got, health.connections) == (sent, 1)
    assert health.connections == 0
    assert reader.transport.is_closing()
    reader.transport.write(b"too late")


@pytest.mark.parametrize("tls", [True, False])
async def test_a_protocol_that_paused_reading_gets_the_rest_when_it_resumes(
    tmp_path: Path, tls: bool
) -> None:
    size = 2**20

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(size))
        await reader.read()
        writer.close()

    async with connected(tmp_path, flood, tls=tls) as (_, reader, _):
        reader.transport.pause_reading()
        await asyncio.sleep(0.05)
        held = len(reader.got)
        await asyncio.sleep(0.05)
        assert held == len(reader.got) < size
        reader.transport.resume_reading()
        await until(lambda: len(reader.got) == size)


@pytest.mark.parametrize("tls", [True, False])
async def test_data_handled_in_one_iteration_is_bounded(
    tmp_path: Path, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, take = list[int](), UpstreamTransport.data_received

    def note(transport: UpstreamTransport, data: bytes) -> None:
        sizes.append(len(data))
        take(transport, data)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(2**22))
        await reader.read()
        writer.close()

    monkeypatch.setattr(UpstreamTransport, "data_received", note)
    async with connected(tmp_path, flood, tls=tls) as (_, reader, _health):
        await until(lambda: len(reader.got) == 2**22)
    assert max(sizes) == MAX_READ


@pytest.mark.parametrize("tls", [True, False])
async def test_a_close_by_the_server_is_an_orderly_end(tmp_path: Path, tls: bool) -> None:
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.close()

    async with connected(tmp_path, greet, tls=tls) as (_, reader, _health):
        await until(lambda: reader.lost)
        assert (reader.got, reader.has_ended) == (b"bye", True)


async def test_an_abort_without_close_notify_is_no_orderly_end(tmp_path: Path) -> None:
    """Any device on the path can cut a connection."""

    def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with connected(tmp_path, cut) as (_, reader, _health):
        await until(lambda: reader.lost)
        assert not reader.has_ended


async def test_a_peer_without_tls_is_an_error(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ssl_conn = UpstreamTls(credentials()).connection("127.0.0.1", present_certificate=True, alpn=[b"h2"])
    async with server:
        transport = await connect(ssl_conn, None, ServerHealth(parse_server(f"https://127.0.0.1:{port}")))
        with pytest.raises(ConnectionError):
            await transport.secured()
        await until(transport.is_closing)
        await asyncio.sleep(0)


async def test_an_offline_drill_cuts_a_new_write(tmp_path: Path) -> None:
    drills = Drills()
    async with connected(tmp_path, echo, drills=drills) as (_, reader, _):
        drills.begin(DrillKind.OFFLINE)
        reader.transport.write(b"lost")
        await until(lambda: reader.lost)
        assert isinstance(reader.lost[0], ConnectionResetError)
        assert reader.got == b""
    drills.close()


async def test_a_slow_link_loses_nothing(tmp_path: Path) -> None:
    drills = Drills()
    sent = bytes(range(256)) * 64
    async with connected(tmp_path, echo, drills=drills) as (_, reader, _):
        drills.begin(DrillKind.SLOW, kbps=10_000, ms=1)
        reader.transport.write(sent)
        await until(lambda: len(reader.got) == len(sent))
        assert reader.got == sent
    drills.close()


async def test_a_handshake_may_succeed_after_its_waiter_was_cancelled() -> None:
    tls = UpstreamTls(credentials()).connection("127.0.0.1", present_certificate=True, alpn=[b"h2"])
    server = ServerTls(tls, ServerHealth(SERVER))
    server.secured.cancel()
    server.handshake_done(tls)
    assert server.secured.cancelled()
