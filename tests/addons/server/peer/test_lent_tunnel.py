"""The tunnel of the peer port, with back-pressure: data waits for a slow receiver, and the sender is paused
meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from addons.requests.answers import ClientLeft
from addons.server.peer.lent_tunnel import (
    ESTABLISHED,
    MAX_HEAD,
    LentLink,
    LentTunnel,
    TunnelRequest,
    parse_connect,
)
from tests.addons.support.refusals import refuses


class Socket(asyncio.Transport):
    """The socket of a connection to a server."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_paused = self.is_closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def abort(self) -> None:
        self.is_closed = True


class Upstream:
    """Open and pass on bytes only once the test allows it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.socket = Socket()
        self.may_open, self.may_pass = asyncio.Event(), asyncio.Event()
        self.may_pass.set()
        self.paced: list[tuple[str, int]] = []
        self._error = error
        self._reader = asyncio.StreamReader(limit=1)
        self.server = asyncio.StreamReaderProtocol(self._reader)
        """Records the calls of the server's transport."""

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await self.may_open.wait()
        if self._error is not None:
            raise self._error
        self.server.connection_made(self.socket)
        loop = asyncio.get_running_loop()
        return self._reader, asyncio.StreamWriter(self.socket, self.server, self._reader, loop)

    async def pace(self, direction: str, size: int) -> None:
        self.paced.append((direction, size))
        await self.may_pass.wait()


class Client:
    """The handler of a client's connection; records the events of its layers."""

    def __init__(self) -> None:
        self.is_full: Callable[[], bool] = bool
        self.sent: list[tuple[bytes, bool]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.has_left = False
        self.woken = 0

    async def tell(self, data: bytes, is_last: bool) -> None:
        self.sent.append((data, is_last))

    async def drained(self) -> None:
        await self.reads.wait()
        if self.has_left:
            raise ClientLeft

    def server_writable(self) -> None:
        self.woken += 1


async def run_callbacks() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def started_tunnel(upstream: Upstream, client: Client) -> LentTunnel:
    tunnel = LentTunnel(LentLink(upstream.open, upstream.pace), client, client.tell)
    tunnel.begin()
    return tunnel


async def open_tunnel() -> tuple[LentTunnel, Upstream, Client]:
    upstream, client = Upstream(), Client()
    tunnel = started_tunnel(upstream, client)
    upstream.may_open.set()
    await run_callbacks()
    assert client.sent.pop() == (ESTABLISHED, False)
    return tunnel, upstream, client


async def test_a_tunnel_reads_from_its_client_once_it_is_open() -> None:
    upstream, client = Upstream(), Client()
    tunnel = started_tunnel(upstream, client)
    await run_callbacks()
    assert (client.is_full(), client.sent) == (True, [])
    upstream.may_open.set()
    await run_callbacks()
    assert (client.is_full(), client.sent, client.woken) == (False, [(ESTABLISHED, False)], 1)
    tunnel.close()
    await run_callbacks()


@pytest.mark.parametrize(
    ("error", "says"), [(ConnectionRefusedError("no"), b"no"), (RuntimeError("secret"), b"the hub could not")]
)
async def test_a_tunnel_that_fails_to_open_is_502(error: Exception, says: bytes) -> None:
    upstream, client = Upstream(error), Client()
    started_tunnel(upstream, client)
    upstream.may_open.set()
    await run_callbacks()
    ((answer, is_last),) = client.sent
    assert is_last
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert says in answer
    assert b"secret" not in answer


async def test_a_client_is_paused_by_the_rate_limit_and_by_a_server_that_does_not_read() -> None:
    tunnel, upstream, client = await open_tunnel()
    upstream.may_pass.clear()
    tunnel.send(b"one")
    await run_callbacks()
    assert (client.is_full(), upstream.socket.written, upstream.paced) == (True, [], [("up", 3)])
    upstream.server.pause_writing()
    upstream.may_pass.set()
    await run_callbacks()
    assert (client.is_full(), upstream.socket.written, client.woken) == (True, [b"one"], 1)
    upstream.server.resume_writing()
    await run_callbacks()
    assert (client.is_full(), client.woken) == (False, 2)
    tunnel.close()
    await run_callbacks()


async def test_a_server_is_paused_by_the_rate_limit_and_by_a_client_that_does_not_read() -> None:
    tunnel, upstream, client = await open_tunnel()
    upstream.may_pass.clear()
    client.reads.clear()
    upstream.server.data_received(b"one")
    await run_callbacks()
    assert (client.sent, upstream.paced) == ([], [("down", 3)])
    upstream.server.data_received(b"two")
    await run_callbacks()
    assert upstream.socket.is_paused
    upstream.may_pass.set()
    await run_callbacks()
    assert (upstream.socket.is_paused, client.sent) == (True, [(b"one", False)])
    client.reads.set()
    await run_callbacks()
    assert not upstream.socket.is_paused
    assert client.sent == [(b"one", False), (b"two", False)]
    tunnel.close()
    await run_callbacks()


async def test_data_before_a_servers_end_of_stream_arrives_before_it() -> None:
    _, upstream, client = await open_tunnel()
    upstream.may_pass.clear()
    upstream.server.data_received(b"one")
    await run_callbacks()
    upstream.server.data_received(b"two")
    upstream.server.eof_received()
    upstream.may_pass.set()
    await run_callbacks()
    assert client.sent == [(b"one", False), (b"two", False), (b"", True)]
    assert upstream.socket.is_closed


async def test_a_server_that_aborts_closes_its_client() -> None:
    tunnel, upstream, client = await open_tunnel()
    upstream.server.pause_writing()
    tunnel.send(b"one")
    await run_callbacks()
    upstream.server.connection_lost(ConnectionResetError())
    await run_callbacks()
    assert client.sent == [(b"", True)]
    assert upstream.socket.written == [b"one"]
    assert upstream.socket.is_closed


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_client_that_leaves_closes_its_tunnel(is_open: bool) -> None:
    upstream, client = Upstream(), Client()
    tunnel = started_tunnel(upstream, client)
    await run_callbacks()
    if is_open:
        upstream.may_open.set()
        await run_callbacks()
        upstream.may_pass.clear()
        upstream.server.data_received(b"one")
    tunnel.close()
    upstream.may_open.set()
    upstream.may_pass.set()
    await run_callbacks()
    upstream.server.connection_lost(None)
    await run_callbacks()
    assert client.sent == ([(ESTABLISHED, False)] if is_open else [])
    assert upstream.socket.is_closed is is_open


async def test_a_tunnel_closes_if_its_client_disconnects_with_a_full_socket() -> None:
    _, upstream, client = await open_tunnel()
    client.has_left = True
    upstream.server.data_received(b"one")
    await run_callbacks()
    assert upstream.socket.is_closed


CONNECT = b"CONNECT Cloud.example:6443 HTTP/1.1\r\nHost: x\r\nX-Edgehub-Lends:  1 \r\n\r\n"


@pytest.mark.parametrize(
    ("head", "host"),
    [(CONNECT, "cloud.example"), (CONNECT.replace(b"Cloud.example", b"[FD00::5]"), "fd00::5")],
)
def test_a_connect_request_names_host_and_port(head: bytes, host: str) -> None:
    headers = (("Host", "x"), ("X-Edgehub-Lends", "1"))
    assert parse_connect("c1", "10.0.0.5", head) == TunnelRequest("c1", "10.0.0.5", headers, host, 6443)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (CONNECT + b"more", 400),
        (CONNECT.replace(b"1.1", b"1.0"), 400),
        (CONNECT.replace(b":6443", b""), 400),
        (CONNECT.replace(b"6443", b"0"), 400),
        (CONNECT.replace(b"6443", b"65536"), 400),
        (CONNECT.replace(b"Cloud", b"user@Cloud"), 400),
        (CONNECT.replace(b"Cloud", b"http://Cloud"), 400),
        (CONNECT.replace(b"Cloud", b"Cl\x00oud"), 400),
        (CONNECT.replace(b"Host: x", b"no colon"), 400),
        (CONNECT.replace(b"Host: x", b" folded: x"), 400),
        (CONNECT.replace(b"Host: x", b": nameless"), 400),
        (CONNECT.replace(b"Host: x", b"Host: x\ny: z"), 400),
        (CONNECT.replace(b"Host: x", b"Host: " + b"x" * MAX_HEAD), 431),
        (CONNECT[:-2] + b"x" * MAX_HEAD, 431),
    ],
)
def test_a_malformed_connect_target_is_refused(head: bytes, code: int) -> None:
    with refuses(code):
        parse_connect("c1", "10.0.0.5", head)
