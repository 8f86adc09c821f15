"""Relayed requests from clients to servers, over the hub's own connections to a server."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import SO_LINGER, SOL_SOCKET

import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import PingFrame
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.server.clients import client_connection
from addons.server.clients.http2_client import STREAM_WINDOW, Http2
from addons.server.limits import client_addresses
from addons.server.relay import finish
from addons.telemetry import metrics
from kube.http.transport.connection_pool import Connection
from tests.addons.support.lasting_parts import ask, connected, watch
from tests.addons.support.observed import until, value_of
from tests.addons.support.proxied import ANSWER, FROM_NODE, Http2Server, Proxy, Raw, watching_proxy
from tests.hub.support.http2 import Streams

GET = b"GET / HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def before[Server: Raw | Http2Server](server: Server) -> AsyncIterator[Proxy[Server]]:
    """Yield a proxy for HTTP/1.1 clients in front of this server."""
    with taddons.context(Proxyserver()):
        proxy = Proxy(server, Raw(FROM_NODE))
        proxy.failover, proxy.is_streamed = None, True
        async with proxy.serve(), asyncio.timeout(20):
            yield proxy


# -- the connection to the server ----------------------------------------------------------------------------------


async def test_all_clients_share_a_connection_that_is_shown_in_their_flows() -> None:
    server, flows = Http2Server(100), list[http.HTTPFlow]()
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.decide = flows.append
        await watch(streams, 20)
        other = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
        assert await ask(other) == 200
        await other.close()
        assert (server.streams, len(proxy.handlers)) == ([21], 2)
    (shown,) = {each.server_conn for each in flows}
    assert shown.address == ("127.0.0.1", server.port)
    assert shown.timestamp_start is not None


async def test_a_recovered_server_is_connected_again() -> None:
    async with connected(Raw(ANSWER)) as (proxy, streams):
        assert await ask(streams) == 200
        up, proxy.server.port = proxy.server.port, 1
        assert await ask(streams) == 502
        proxy.server.port = up
        assert await ask(streams) == 200


async def test_a_connection_that_the_server_closes_is_not_reused() -> None:
    server = Raw(ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), available=True)
    async with connected(server) as (_, streams):
        assert [await ask(streams) for _ in range(3)] == [200] * 3
        assert server.accepted == 3


# -- relayed responses and upgrades --------------------------------------------------------------------------------


async def test_an_http1_client_gets_an_http2_servers_response_in_chunks() -> None:
    async with before(Http2Server(100)) as proxy:
        head, _, body = (await proxy.ask(GET)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Transfer-Encoding: chunked" in head
        assert body == b"6\r\nserver\r\n0\r\n\r\n"


async def test_a_response_delimited_by_the_servers_close_is_chunked_for_the_client() -> None:
    async with before(Raw(b"HTTP/1.1 200 OK\r\n\r\nserver")) as proxy:
        twice = GET.replace(b"Connection: close\r\n", b"") + GET
        first, second = (await proxy.ask(twice)).split(b"HTTP/1.1 200 OK\r\n")[1:]
    for answer in (first, second):
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in head
        assert body == b"6\r\nserver\r\n0\r\n\r\n"


async def test_a_body_in_single_bytes_is_forwarded_in_joined_pieces() -> None:
    """Each piece once took a hundred times as long as its byte, so kubelet waited for 2.5 s."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 2000 + b"0\r\n\r\n"
    async with before(Raw(answer)) as proxy:
        _, _, body = (await proxy.ask(GET)).partition(b"\r\n\r\n")
    assert body.count(b"a" * 20) > 0
    assert len(body.split(b"\r\n")) < 100


@pytest.mark.parametrize("answer", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n"])
async def test_a_response_without_a_body_is_relayed_without_one(answer: bytes) -> None:
    async with connected(Raw(answer)) as (_, streams):
        assert await ask(streams) == int(answer[9:12])
    async with before(Raw(answer)) as proxy:
        head, _, body = (await proxy.ask(GET)).partition(b"\r\n\r\n")
        assert (head[9:12], body) == (answer[9:12], b"")


async def test_a_response_to_head_has_a_content_length_and_no_body() -> None:
    async with before(Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")) as proxy:
        head, _, body = (await proxy.ask(GET.replace(b"GET", b"HEAD"))).partition(b"\r\n\r\n")
        assert b"content-length: 6" in head
        assert body == b""


async def test_a_truncated_body_is_an_error_for_each_client() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nhalf"
    async with connected(Raw(half)) as (_, streams):
        stream = streams.get("/", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.bodies[stream] == b"half"
    async with before(Raw(half)) as proxy:
        answer = await proxy.ask(GET)
        assert answer.endswith(b"\r\n\r\nhalf")
        assert b"content-length: 60" in answer


@pytest.mark.parametrize("rest", [b"", b"and at once"])
async def test_bytes_after_an_upgrade_are_relayed_in_both_directions(rest: bytes) -> None:
    said = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    heard: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(said + rest)
        writer.write(await reader.readexactly(5))
        assert await reader.read() == b"", "the client's end is told"
        writer.close()

    with watching_proxy() as proxy:
        proxy.server._handle = echo  # type: ignore[method-assign]  # what else a server may do
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(
                b"POST /exec HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
            assert b"upgrade: SPDY/3.1" in head
            assert await reader.readexactly(len(rest)) == rest
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            writer.close()
    assert b"upgrade: SPDY/3.1" in heard[0]


async def test_the_end_of_an_upgraded_connection_reaches_the_client() -> None:
    said = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nbye"
    with watching_proxy() as proxy:
        proxy.server = Raw(said)
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(
                b"GET /exec HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
            )
    assert answer.endswith(b"\r\n\r\nbye")


@pytest.mark.parametrize("who", ["the server resets", "the server ends", "the client says no more"])
async def test_an_upgraded_connection_ends_with_either_side(
    who: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A terminal in a container once hung for ever when its server was gone, as did a client that had closed its
    side."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
        await reader.read(5)
        if who == "the server resets":
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        if who == "the client says no more":
            assert await reader.read() == b""
        over.set()
        writer.close()

    with watching_proxy() as proxy:
        proxy.server._handle = serve  # type: ignore[method-assign]  # what else a server may do
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(
                b"POST /exec HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
            )
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"hello")
            if who == "the client says no more":
                writer.write_eof()
            assert await reader.read() == b""
            await over.wait()
            writer.close()
    assert "crashed" not in caplog.text


# -- disconnects ---------------------------------------------------------------------------------------------------


async def test_a_disconnected_client_ends_only_its_own_stream() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (_, streams):
        left, stays = await watch(streams, 2)
        streams.cancel(left)
        await server.until(lambda: (0, 1) in server.resets)
        server.tell(0, 3, b" on")
        await streams.until(lambda: streams.received[stays] == len(b"server on"))


async def test_a_stream_reset_by_the_server_is_reset_only_for_its_client() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (_, streams):
        ended, stays = await watch(streams, 2)
        server.reset(0, 1, ErrorCodes.INTERNAL_ERROR)
        await streams.until(lambda: ended in streams.ended)
        assert stays not in streams.ended


async def test_a_relayed_watch_can_be_ended() -> None:
    server, flows = Http2Server(100), list[http.HTTPFlow]()
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.decide = flows.append
        ended, stays = await watch(streams, 2)
        finish(flows[0], "the rules have changed")
        await streams.until(lambda: ended in streams.ended)
        assert stays not in streams.ended
        await server.until(lambda: (0, 1) in server.resets)
        finish(flows[0], "again")


async def test_a_request_without_an_upstream_is_500() -> None:
    """A hook that should have set the server may have raised."""
    async with connected(Raw(ANSWER)) as (proxy, streams):
        proxy.to_server = None  # type: ignore[assignment]  # no upstream
        assert await ask(streams) == 500
        assert not proxy.server.got
        proxy.to_server = proxy.to_node


# -- back pressure -------------------------------------------------------------------------------------------------


async def test_a_slow_client_does_not_stop_streams_of_the_shared_connection() -> None:
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        await watch(streams, 1)
        streams.reads = streams.keep = False
        server.tell_much(0, 1, 4 * STREAM_WINDOW)
        assert 0 < server.sent < 4 * STREAM_WINDOW
        other = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
        assert await ask(other) == 200
        await other.close()


async def test_bodies_that_their_server_does_not_read_are_bounded_over_all_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a bound for each stream only, a thousand streams once held half a gigabyte."""
    # Bytes that an HTTP/2 server accepts before it increases the window (RFC 9113, 6.9.2).
    server_window = 65_535
    pseudo = {":method": "GET", ":scheme": "https", ":authority": "hub", ":path": "/"}
    bound = 8 * STREAM_WINDOW
    monkeypatch.setattr(client_addresses, "MAX_UNSENT_OF_ADDRESS", bound)
    server = Http2Server(100)
    server.reads = False
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_request_streamed = True
        fields = {**pseudo, ":method": "POST", ":path": "/"}
        server.is_silent = True
        uploads = [streams.send(fields, end=False) for _ in range(20)]
        for each in uploads:
            for _ in range(4):
                await streams.window(each, STREAM_WINDOW // 4)
                streams.more(each, bytes(STREAM_WINDOW // 4))
        await streams.until(lambda: len(streams.status) == 12)
        assert set(streams.status.values()) == {429}
        address = proxy.layer.address
        # The end of the last upload is read in a later iteration.
        await until(lambda: address.unsent.size >= bound - server_window)
        assert address.unsent.size <= bound
        server.is_silent = False
        assert await ask(streams) == 200
        for each in uploads:
            streams.cancel(each)
        await server.until(lambda: len(server.resets) == len(uploads))
        assert address.unsent.size == 0


async def test_the_connection_of_a_client_that_does_not_read_its_socket_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Data beyond the kernel's buffer counts like unread HTTP/2 data."""
    monkeypatch.setattr(client_addresses, "MAX_UNREAD", 16 * 1024)
    monkeypatch.setattr(client_addresses, "FAIR_UNREAD", 16 * 1024)
    monkeypatch.setattr(client_connection, "SOCKET_BUFFER", 0)
    server, reset = Http2Server(100), value_of(metrics.UNREAD_STREAMS)
    async with before(server) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(GET.replace(b"GET /", b"GET /watch"))
        await reader.readuntil(b"server\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio says so in no other way
        server.tell_much(0, 1, 2**26)
        await server.until(lambda: (0, 1) in server.resets)
        writer.transport.abort()
    assert value_of(metrics.UNREAD_STREAMS) == reset + 1


async def test_the_connection_of_a_client_that_pings_and_does_not_read_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each PING response once stayed in memory, as did each refusal of a malformed request."""
    reset = value_of(metrics.UNREAD_STREAMS)
    async with connected(Raw(ANSWER)) as (_, streams):
        assert await ask(streams) == 200
        streams.say(PingFrame(0, bytes(8)).serialize())
        assert await ask(streams) == 200
        monkeypatch.setattr(Http2, "unwritten", 2 * client_addresses.MAX_UNREAD)
        streams.say(PingFrame(0, bytes(8)).serialize())
        await streams.gone()
    assert value_of(metrics.UNREAD_STREAMS) == reset + 1


async def test_a_connection_opened_for_a_disconnected_client_is_reused() -> None:
    """Clients that disconnected at that moment once used up file descriptors, and in the end the limit of the hub's
    connections."""
    server, opens, may_open = Http2Server(100), asyncio.Event(), asyncio.Event()

    async def connect(_: str) -> Connection:
        opens.set()
        await may_open.wait()
        return await connect_at_once("")

    async with server.serve(), connected(server) as (proxy, streams):
        pool = proxy.to_server.pool
        connect_at_once, pool._connect = pool._connect, connect
        left = streams.get("/", {})
        await opens.wait()
        streams.cancel(left)
        assert len(pool) == 1
        may_open.set()
        assert await ask(streams) == 200
        assert (server.streams, len(pool)) == ([1], 1)
