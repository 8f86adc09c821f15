"""The hub's own requests through a proxy: whom it is asked for, with what, and that TLS goes on to the server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from addons.link.health import Cloud, ServerHealth
from addons.link.servers import Server, parse_server
from kube.http.kubeconfig import Credentials
from kube.http.proxies import parse_proxy
from tests.addons.support.link_parts import AUTHORITY, World, answer, credentials, linked, server_context
from tests.addons.support.observed import until
from tests.cloud.connect_proxy import ConnectProxy
from tests.kube.support.http2_peer import Peer

SERVER = parse_server("https://cloud.example:6443")
"""A name that the proxy alone can resolve; `credentials` expect another one in the server's certificate."""
REFUSES = b"HTTP/1.1 403 Forbidden\r\n\r\n"


def port_of(peer: Peer) -> int:
    return parse_server(peer.url).port


def through(proxy: ConnectProxy, url: str = "") -> Credentials:
    return replace(credentials(), server_name="127.0.0.1", proxy=parse_proxy(url or proxy.url))


def lead(world: World, own: Credentials, server: Server = SERVER) -> None:
    """Have the hub use this server alone."""
    world.health = ServerHealth(server)
    world.link.start(Cloud([world.health], "priority"), own)


async def test_the_proxy_is_asked_once_for_the_server_and_tls_goes_on_to_it(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer)) as proxy,
    ):
        lead(world, through(proxy))
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
        lead(world, through(proxy))
        with pytest.raises(ConnectionError, match=r"refuses: 407 Proxy Authentication Required$"):
            await world.ask()
        lead(world, through(proxy, f"http://u:pw@127.0.0.1:{proxy.port}"))
        assert await world.ask() == b"of /x"
        assert "proxy-authorization" not in peer.asked[0].fields


async def test_a_proxy_may_be_spoken_to_in_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_bytes(AUTHORITY.certificate)
    peer, context = Peer(answer), server_context(tmp_path, alpn=("http/1.1",))
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer), tls=context) as proxy,
    ):
        lead(world, through(proxy))
        with pytest.raises(OSError, match="ertificate"):
            await world.ask()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert await world.ask() == b"of /x"
        assert peer.connections == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [(REFUSES, "refuses: 403"), (b"220 mail", "closed the connection"), (bytes(20_000), "HTTP")],
)
async def test_a_proxy_that_leads_nowhere_is_told(tmp_path: Path, said: bytes, words: str) -> None:
    peer = Peer(answer)
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer), answer=said) as proxy,
    ):
        lead(world, through(proxy))
        with pytest.raises(ConnectionError, match=words):
            await world.ask()
        assert world.health.connections == 0


async def test_the_environment_names_a_proxy_for_what_it_does_not_leave_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, elsewhere = Peer(answer), parse_server("https://direct.example:6443")
    async with (
        linked(peer, credentials(), server_context(tmp_path)) as world,
        ConnectProxy(port_of(peer)) as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "direct.example,10.0.0.0/8")
        lead(world, replace(credentials(), server_name="127.0.0.1"))
        assert await world.ask() == b"of /x"
        assert world.link.proxy(elsewhere) is None
        assert world.link.proxy(Server("https", "peer.example", 10269, "node-2")) is None
        assert world.link.proxy(Server("https", "relay.example", 10269, "relay x")) is not None
        monkeypatch.setenv("HTTPS_PROXY", "socks5://x")
        with pytest.raises(ValueError, match="the URL of the proxy"):
            lead(world, credentials())


async def test_a_proxy_that_says_nothing_is_not_waited_for_without_end(tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    peer = Peer(answer)
    async with server, linked(peer, credentials(), server_context(tmp_path)) as world:
        lead(world, replace(credentials(), proxy=parse_proxy(f"http://127.0.0.1:{port}")))
        asking = asyncio.create_task(world.ask())
        await until(lambda: world.link.connections._opening)
        world.link.close()
        with pytest.raises(ConnectionResetError):
            await asking
