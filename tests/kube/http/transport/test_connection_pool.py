"""The hub's session: one connection for all requests, and its requests when a peer misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from hyperframe.frame import SettingsFrame

from kube.http.transport.connection_pool import Connection, ConnectionPool
from kube.http.transport.http2_connection import Http2Connection
from kube.http.transport.response_sink import MAX_UNREAD
from kube.http.transport.streamed_response import CHUNK
from tests.kube.support.cleartext import LATER, CleartextSession
from tests.kube.support.http2_peer import SMALL, Asked, Peer
from tests.kube.support.sink import Sink, connected

LIMIT = 2**20
"""Bytes, more than any of these bodies has."""


def answer(asked: Asked) -> None:
    asked.head(201, ("content-type", "text/plain"), ("x-twice", "1"), ("x-twice", "2"))
    asked.data(b"of ")
    asked.data(asked.fields[":path"].encode(), end=True)


def hold(asked: Asked) -> None:
    """Start a watch response with one event, and leave it open."""
    asked.head()
    asked.data(b"event")


async def ask(
    session: CleartextSession,
    peer: Peer,
    path: str = "/x",
    body: bytes | None = None,
    headers: tuple[tuple[str, str], ...] = (),
    timeout: float = LATER,
) -> tuple[int, bytes]:
    asked = session.open("GET", peer.url + path, headers=headers, body=body, timeout=timeout)
    async with asked as response:
        return response.status, await response.read(LIMIT)


async def test_a_request_gets_its_response() -> None:
    peer = Peer(answer)
    async with peer.session() as session:
        headers = (
            ("Accept", "text/plain"),
            ("X-Own", "ü"),
            ("Connection", "close"),
            ("TE", "gzip"),
            ("Host", "other"),
        )
        url = f"{peer.url}/a%2Fb?x=%20y"
        asked = session.open("PATCH", url, headers=headers, body=b"{}", timeout=LATER)
        async with asked as response:
            assert response.status == 201
            assert response.headers["Content-Type"] == "text/plain"
            assert [value for name, value in response.headers.items() if name == "x-twice"] == ["1", "2"]
            assert await response.read(LIMIT) == b"of /a%2Fb?x=%20y"
    (seen,) = peer.asked
    assert seen.body == b"{}"
    assert seen.fields == {
        ":method": "PATCH",
        ":scheme": "http",
        ":authority": peer.url[len("http://") :],
        ":path": "/a%2Fb?x=%20y",
        "accept": "text/plain",
        "x-own": "ü",
        "content-length": "2",
    }


async def test_all_requests_share_a_connection() -> None:
    peer = Peer(answer)
    async with peer.session() as session:
        got = await asyncio.gather(*(ask(session, peer, f"/{number}") for number in range(50)))
        assert got == [(201, b"of /%d" % number) for number in range(50)]
        assert await ask(session, peer, "/more") == (201, b"of /more")
        assert peer.connections == 1


async def test_requests_beyond_the_peers_stream_limit_open_another_connection() -> None:
    peer = Peer(hold, 2)
    async with peer.session() as session:
        opened = [session.get(peer.url) for _ in range(5)]
        responses = [await each.__aenter__() for each in opened]
        assert peer.connections == 3
        assert [response.status for response in responses] == [200] * 5
        await opened[0].__aexit__(None, None, None)
        again = session.get(peer.url)
        await again.__aenter__()
        assert peer.connections == 3, "an ended one makes room"
        for each in (*opened[1:], again):
            await each.__aexit__(None, None, None)


async def test_a_server_with_a_stream_limit_of_zero_is_connected_to_once() -> None:
    """The pool once opened connections without end."""
    opened: list[Sink] = []

    async def connect(_: str) -> Connection:
        made, sink = connected(Http2Connection)
        opened.append(sink)
        assert len(opened) < 10
        made.data_received(SettingsFrame(0, {SettingsFrame.MAX_CONCURRENT_STREAMS: 0}).serialize())
        await asyncio.sleep(0)
        return made

    pool = ConnectionPool(connect)
    asked = [pool.acquire("") for _ in range(3)]
    got = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, OSError) for each in got)
    assert [each.is_gone for each in opened] == [True]


@pytest.mark.parametrize("size", [0, 1, SMALL, SMALL + 1, 70 * SMALL])
async def test_a_body_is_sent_within_the_window_of_the_peer(size: int) -> None:
    peer = Peer(answer)
    body = bytes(index % 251 for index in range(size))
    async with peer.session() as session:
        assert (await ask(session, peer, body=body))[0] == 201
    assert peer.asked[0].body == body
    assert peer.asked[0].fields["content-length"] == str(size)


async def test_a_cut_aborts_connections_that_are_being_opened() -> None:
    """A lease renewal once waited ten seconds in a black hole, although another uplink was available after five."""
    opening: list[str] = []

    async def connect(key: str) -> Connection:
        opening.append(key)
        never: asyncio.Future[Connection] = asyncio.Future()
        return await never

    pool = ConnectionPool[str](connect)
    waiting = {each: asyncio.create_task(pool.acquire(each)) for each in ("gone", "there")}
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert opening == ["gone", "there"]
    assert pool.cut(lambda key: key == "gone") == 0
    with pytest.raises(ConnectionResetError):
        await waiting["gone"]
    assert not waiting["there"].done()
    pool.close()
    with pytest.raises(ConnectionResetError):
        await waiting["there"]


async def test_a_cancelled_request_resets_its_stream() -> None:
    peer = Peer(hold)
    async with peer.session() as session:
        async with session.get(peer.url) as response:
            assert await anext(response.chunks()) == b"event"
        await peer.asked[0].reset.wait()
        task = asyncio.create_task(ask(session, peer, "/cancelled"))
        await peer.was_asked(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await peer.asked[1].reset.wait()
        assert peer.connections == 1


async def test_a_connection_that_timed_out_gets_no_further_request() -> None:
    peer = Peer(lambda asked: hold(asked) if asked.fields[":path"] == "/watch" else None)
    async with peer.session() as session:
        asked = session.get(f"{peer.url}/watch")
        async with asked as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"event"
            for tries in (1, 2):
                with pytest.raises(TimeoutError):
                    await ask(session, peer, timeout=0.2)
                assert peer.connections == tries
            peer.asked[0].data(b"more")
            assert await anext(chunks) == b"more", "what was under way goes on"
        await peer.were_closed(2)


async def test_a_response_that_does_not_end_times_out() -> None:
    peer = Peer(hold)
    async with peer.session() as session:
        with pytest.raises(TimeoutError):
            await ask(session, peer, timeout=0.05)


def reset_at_once(asked: Asked) -> None:
    asked.break_off()


def reset_in_the_middle(asked: Asked) -> None:
    hold(asked)
    asked.break_off()


@pytest.mark.parametrize("act", [reset_at_once, reset_in_the_middle])
async def test_an_aborted_response_does_not_affect_a_parallel_one(
    act: Callable[[Asked], None],
) -> None:
    peer = Peer(lambda asked: act(asked) if asked.fields[":path"] == "/x" else answer(asked))
    async with peer.session() as session:
        broken, complete = await asyncio.gather(
            ask(session, peer), ask(session, peer, "/other"), return_exceptions=True
        )
        assert isinstance(broken, ConnectionResetError)
        assert complete == (201, b"of /other")
        assert peer.connections == 1


LOSSES: dict[str, Callable[[Asked], None]] = {
    "hung up": lambda asked: asked.hang_up(),
    "ended": lambda asked: asked.end_connection(),
    "a frame of the server's alone": lambda asked: asked.say(b"\x00\x00\x00\x01\x04\x00\x00\x00\x02"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_connection_aborts_its_requests_and_the_next_opens_a_new_one(loss: str) -> None:
    peer = Peer(lambda asked: LOSSES[loss](asked) if asked.fields[":path"] == "/x" else hold(asked))
    async with peer.session() as session:
        async with session.get(f"{peer.url}/w") as watch:
            chunks = watch.chunks()
            assert await anext(chunks) == b"event"
            with pytest.raises(OSError):  # noqa: PT011 - which one is the loss's
                await ask(session, peer)
            with pytest.raises(OSError):  # noqa: PT011 - as above
                await anext(chunks)
        async with session.get(f"{peer.url}/w") as watch:
            assert await anext(watch.chunks()) == b"event"
        assert peer.connections == 2


async def test_a_lost_connection_is_removed_from_the_pool_under_any_key() -> None:
    """Each token of a pod is a key, and a pod gets a new token each hour."""
    made = [SimpleNamespace(is_open=True, has_capacity=True) for _ in range(2)]

    async def connect(key: int) -> Connection:
        return cast(Connection, made[key])

    pool = ConnectionPool(connect)
    await pool.acquire(0)
    made[0].is_open = False
    await pool.acquire(1)
    assert [*pool._connections] == [1]


async def test_a_peer_of_another_protocol_is_unreachable() -> None:
    session = CleartextSession()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n" * 10)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(OSError):  # noqa: PT011 - whichever side is first
            async with session.get(url):
                pass


async def test_closing_the_session_aborts_a_running_request() -> None:
    peer = Peer(hold)
    async with peer.session() as session, session.get(peer.url) as response:
        chunks = response.chunks()
        await anext(chunks)
        session.close()
        with pytest.raises(ConnectionResetError):
            await anext(chunks)


async def test_a_response_is_returned_in_pieces() -> None:
    peer = Peer(hold)
    async with peer.session() as session:
        asked = session.get(peer.url + "/")
        async with asked as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"event"
            peer.asked[0].data(b"more")
            assert await anext(chunks) == b"more"
            peer.asked[0].data(b"last", end=True)
            assert [chunk async for chunk in chunks] == [b"last"]
    assert not peer.asked[0].reset.is_set()


async def test_unread_data_is_bounded_and_waits_at_the_peer() -> None:
    """A compressed watch arrives faster than its reader applies the decompressed events."""
    peer = Peer(lambda asked: asked.head())
    async with peer.session() as session, asyncio.timeout(LATER):
        asked = session.get(peer.url + "/")
        async with asked as response:
            sent = got = 0
            for _ in range(2):
                while size := min(peer.asked[0].window, 16 * 1024):
                    peer.asked[0].data(bytes(size))
                    sent += size
                assert sent - got <= MAX_UNREAD
                chunks = response.chunks()
                while got < sent:
                    chunk = await anext(chunks)
                    assert len(chunk) < CHUNK + 16 * 1024
                    got += len(chunk)
                await peer.has_window(peer.asked[0])
        assert sent > MAX_UNREAD
        await peer.asked[0].reset.wait()
