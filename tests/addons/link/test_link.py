"""One connection for each server and identity, with the right TLS settings, and the health reported from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from addons.link.drills import DrillKind
from addons.link.health import Condition
from addons.link.servers import SHARED_PARTITIONS, parse_server
from addons.link.timeouts import TimeoutEstimator
from kube.http.client import Client
from tests.addons.support.link_parts import (
    AUTHORITY,
    NODE,
    World,
    answer,
    credentials,
    hold,
    linked,
    server_context,
)
from tests.addons.support.observed import until
from tests.cloud.pki import Authority
from tests.kube.support.http2_peer import Asked, Peer


async def test_all_requests_of_the_hub_to_a_server_share_a_connection(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        assert await asyncio.gather(*(world.ask(f"/{number}") for number in range(20))) == [
            b"of /%d" % number for number in range(20)
        ]
        assert (peer.connections, world.health.connections) == (1, 1)


async def test_a_renewed_certificate_opens_a_new_connection(tmp_path: Path) -> None:
    own, peer = credentials(), Peer(answer)
    async with linked(peer, own, server_context(tmp_path)) as world:
        await world.ask()
        renewed = AUTHORITY.issue_node("n1")
        own.user.certificate.data, own.user.key.data = renewed.certificate, renewed.key
        await world.ask()
        assert peer.connections == 2
    assert renewed.certificate != NODE.certificate


async def test_an_accepted_token_has_its_own_connection(tmp_path: Path) -> None:
    """kube-apiserver closes a connection on which it got a bad token."""

    def judge(asked: Asked) -> None:
        asked.head(200 if asked.fields["authorization"] == "Bearer good" else 401)
        asked.data(b"", end=True)

    peer = Peer(judge)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        for number in range(3 * SHARED_PARTITIONS):
            await world.ask(token=f"Bearer bad-{number}")
        await world.ask(token="Bearer good")
        bad = peer.connections
        assert bad <= SHARED_PARTITIONS
        await world.ask(token="Bearer good")
        await world.ask(token="Bearer good")
        assert peer.connections <= bad + 1


async def test_probes_use_the_open_connection(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        world.link.start_probes(Client(world.lent, "", {}))
        await until(lambda: world.health.condition is Condition.UP)
        await until(lambda: world.health.connections == 1)
        world.link.suspect(world.server)
        await until(lambda: len(peer.asked) == 2)
        assert peer.connections == 1
        assert world.health.timeouts.round_trip is not None
        assert world.health.last_received > 0


async def test_a_silent_server_times_out(tmp_path: Path) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    peer = Peer(answer)
    peer.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    world = World(peer, credentials())
    world.health.timeouts = TimeoutEstimator(0.5, 0.1)
    world.link.start_probes(Client(world.lent, "", {}))
    async with server:
        await until(lambda: world.health.condition is Condition.DOWN)
        world.link.close()


async def test_no_request_is_sent_to_a_server_with_another_ca(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(trusted=Authority("another")), server_context(tmp_path)) as world:
        with pytest.raises(ConnectionError, match="Certificate verify failed: "):
            await world.ask()
        assert peer.asked == []
        assert world.health.usable, "it is probed first"


async def test_a_server_without_http2_is_used_over_http1(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=f"{request.version.minor} {request.path}".encode())

    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.01)
    await runner.setup()
    context = server_context(tmp_path, alpn=("http/1.1",))
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    stand_in = Peer(answer)
    stand_in.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    world = World(stand_in, credentials())
    assert [*await asyncio.gather(world.ask("/a"), world.ask("/b"))] == [b"1 /a", b"1 /b"]
    world.link.close()
    await until(lambda: not world.health.connections)
    await runner.cleanup()


async def test_a_cut_connection_ends_its_requests_and_the_next_one_gets_a_new_connection(
    tmp_path: Path,
) -> None:
    peer = Peer(hold)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        async with world.lent.open("GET", "/x", headers=(), body=None, timeout=10) as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"event"
            assert world.link.cut(parse_server("https://elsewhere:1")) == 0
            assert world.link.cut(world.server) == 1
            with pytest.raises(ConnectionResetError):
                await anext(chunks)
        async with world.lent.open("GET", "/x", headers=(), body=None, timeout=10) as response:
            assert await anext(response.chunks()) == b"event"
        assert peer.connections == 2


async def test_an_offline_drill_cuts_only_connections_to_the_cloud(tmp_path: Path) -> None:
    peer = Peer(hold)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        async with world.lent.open("GET", "/x", headers=(), body=None, timeout=10) as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"event"
            world.link.drills.begin(DrillKind.OFFLINE)
            with pytest.raises(ConnectionResetError):
                await anext(chunks)
        with pytest.raises(ConnectionRefusedError, match="a drill: the link is offline"):
            await world.ask(at=str(world.server))
        assert world.health.condition is Condition.DOWN
        world.link.drills.end()
        with pytest.raises(ConnectionError, match="the cloud cannot be reached"):
            await world.ask()  # up again once a probe has succeeded


async def test_a_slow_link_drill_delays_the_hubs_own_requests(tmp_path: Path) -> None:
    peer = Peer(answer)
    async with linked(peer, credentials(), server_context(tmp_path)) as world:
        await world.ask()
        paced: list[int] = []
        proper = world.link.drills.pace

        async def pace(size: int, *, is_first: bool) -> None:
            paced.append(size)
            await proper(size, is_first=is_first)

        world.link.drills.pace = pace  # type: ignore[method-assign]  # this one's
        world.link.drills.begin(DrillKind.SLOW, kbps=1000, ms=1)
        assert await world.ask("/slow") == b"of /slow"
        assert sum(paced) > len(b"of /slow")
