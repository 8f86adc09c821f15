"""An HTTP/1.1 connection: when it is reused, its handling of misbehaving servers, and back-pressure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kube.errors import StatusError
from kube.http.transport.http1_connection import IDLE_TIMEOUT, MAX_HEAD, Http1Connection
from kube.http.transport.response_head import MAX_FIELDS
from kube.http.transport.response_sink import MAX_UNREAD, ResponseSink
from tests.kube.support.cleartext import LATER, CleartextSession
from tests.kube.support.sink import connected, fields

LIMIT = 2**22
COMPLETE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """Answer the head of each request from `answers`, in order and then with the last one; `end` closes after one."""

    def __init__(self, *answers: bytes, end: bool = False) -> None:
        self.answers = list(answers)
        self.end = end
        self.heads: list[bytes] = []
        self.connections = 0
        self.url = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[CleartextSession]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        session = CleartextSession(Http1Connection)
        async with server:
            yield session
            session.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                writer.write(answer)
                await writer.drain()
                if self.end or not answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


async def ask(session: CleartextSession, peer: Peer, method: str = "GET", body: bytes | None = None) -> bytes:
    asked = session.open(method, f"{peer.url}/x?y=%20", headers=[("X-Own", "1")], body=body, timeout=LATER)
    async with asked as response:
        return await response.read(LIMIT)


async def test_a_connection_is_reused_for_the_next_request() -> None:
    peer = Peer(COMPLETE)
    async with peer.serve() as session:
        for _ in range(3):
            assert await ask(session, peer) == b"ok"
        assert peer.connections == 1
    authority = peer.url.removeprefix("http://").encode()
    assert peer.heads[0] == b"GET /x?y=%20 HTTP/1.1\r\nhost: " + authority + b"\r\nx-own: 1\r\n\r\n"


async def test_concurrent_requests_have_separate_connections() -> None:
    peer = Peer(COMPLETE)
    async with peer.serve() as session:
        assert await asyncio.gather(*(ask(session, peer) for _ in range(5))) == [b"ok"] * 5
        assert 1 < peer.connections <= 5


@pytest.mark.parametrize(
    ("answer", "is_framed"),
    [
        (COMPLETE, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\n\r\nok", False),
        (b"HTTP/1.0 200 OK\r\n\r\nok", False),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + COMPLETE, True),
    ],
)
async def test_a_response_records_whether_its_end_was_framed(answer: bytes, is_framed: bool) -> None:
    """A body that is delimited only by the close of the connection may be truncated."""
    peer = Peer(answer, end=True)
    async with peer.serve() as session, session.get(peer.url) as got:
        assert await got.read(LIMIT) == b"ok"
        assert got.is_framed is is_framed


async def test_a_content_length_of_a_chunked_response_is_dropped() -> None:
    """A client that used it would take the rest of the body for the next response."""
    peer = Peer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    )
    async with peer.serve() as session, session.get(peer.url) as got:
        assert "Content-Length" not in got.headers
        assert await got.read(LIMIT) == b"ok"


async def test_the_response_to_head_has_no_body() -> None:
    peer = Peer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    async with peer.serve() as session:
        assert await ask(session, peer, "HEAD") == b""
        assert await ask(session, peer, "HEAD") == b""
        assert peer.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: " + bytes(MAX_HEAD + 10) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a:\r\n" * MAX_FIELDS + b"content-length: 0\r\n\r\n",
        b"",
    ],
    ids=["another protocol", "cut", "a cut chunk", "a head without end", "a head of many fields", "nothing"],
)
async def test_a_truncated_response_is_an_error(answer: bytes) -> None:
    peer = Peer(answer, end=True)
    async with peer.serve() as session:
        with pytest.raises(ConnectionResetError):
            await ask(session, peer, "POST", b"x")


async def test_bytes_after_a_response_close_the_connection() -> None:
    """They must not become a part of the next response."""
    peer = Peer(COMPLETE + COMPLETE.replace(b"ok", b"no"), COMPLETE)
    async with peer.serve() as session:
        for _ in range(2):
            assert await ask(session, peer) == b"ok"
        assert peer.connections == 2


@pytest.mark.parametrize(("method", "again"), [("GET", True), ("POST", False)])
async def test_a_read_on_a_closed_idle_connection_is_sent_again(method: str, again: bool) -> None:
    """A server closes idle connections; a write may have been executed."""
    peer = Peer(COMPLETE, b"", COMPLETE)
    async with peer.serve() as session:
        assert await ask(session, peer) == b"ok"
        if again:
            assert await ask(session, peer, method) == b"ok"
        else:
            with pytest.raises(ConnectionResetError):
                await ask(session, peer, method)
        assert len(peer.heads) == 2 + again


@pytest.mark.parametrize("asks_for", [None, b"upgrade"])
async def test_a_get_that_may_execute_a_command_is_sent_once(asks_for: bytes | None) -> None:
    """A WebSocket client requests exec with GET."""
    made, _ = connected(Http1Connection)
    first, second = ResponseSink(), ResponseSink()
    made.send(fields(), b"", first)
    made.data_received(COMPLETE)
    made.release(first)
    made.send([*fields(), *([(asks_for, b"websocket")] if asks_for else [])], b"", second)
    made.connection_lost(None)
    assert second.begin_anew() is (asks_for is None)


async def test_unread_data_is_bounded_and_waits_at_the_server() -> None:
    size = 64 * MAX_UNREAD
    peer = Peer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
    seen = 0

    def hear(more: int) -> None:
        nonlocal seen
        seen += more

    async with peer.serve() as session, session.get(peer.url) as got:
        got.received = hear
        chunks, taken = got.chunks(), 0
        async for chunk in chunks:
            taken += len(chunk)
            assert seen - taken <= 2 * MAX_UNREAD
        assert taken == size


@pytest.mark.looptime
async def test_an_idle_connection_is_closed() -> None:
    made, sink = connected(Http1Connection)
    await asyncio.sleep(IDLE_TIMEOUT / 2)
    response = ResponseSink()
    made.send(fields(), b"", response)
    made.data_received(COMPLETE)
    made.release(response)
    await asyncio.sleep(IDLE_TIMEOUT)
    assert made.has_capacity
    await asyncio.sleep(IDLE_TIMEOUT)
    assert sink.is_gone


@pytest.mark.looptime
async def test_a_silent_watch_does_not_time_out() -> None:
    made, sink = connected(Http1Connection)
    response = ResponseSink()
    made.send(fields(), b"", response)
    await asyncio.sleep(10 * IDLE_TIMEOUT)
    assert not sink.is_gone
    made.release(response)
    assert sink.is_gone, "its answer has not ended"


async def test_tcp_keepalive_is_on_for_a_silent_watch() -> None:
    """A watch may be silent for long, and routers drop silent connections."""
    peer = Peer(COMPLETE)
    async with peer.serve():
        host, _, port = peer.url.removeprefix("http://").partition(":")
        transport, _ = await asyncio.get_running_loop().create_connection(Http1Connection, host, int(port))
        stream = transport.get_extra_info("socket")
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE_TIMEOUT
        transport.abort()


async def test_a_header_that_h11_does_not_send_is_refused() -> None:
    made, _ = connected(Http1Connection)
    with pytest.raises(StatusError) as raised:
        made.send([*fields(), (b"x y", b"z")], b"", ResponseSink())
    assert raised.value.code == 400
    made.connection_lost(None)
