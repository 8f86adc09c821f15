"""Connections that a peer closes in order: no unprocessed request is lost, and none is sent twice."""

from __future__ import annotations

import asyncio
import weakref

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hyperframe.frame import ContinuationFrame, HeadersFrame, SettingsFrame

from kube.http.transport.http2_connection import PING_AFTER, Http2Connection
from kube.http.transport.http2_framing import MAX_FRAME, MAX_HEAD
from kube.http.transport.response_sink import SENDS, NotProcessed, ResponseSink
from tests.kube.support.cleartext import LATER, CleartextSession
from tests.kube.support.http2_peer import Asked, Peer
from tests.kube.support.sink import connected, fields

NOBODY_READS = ("Prefer", "return=minimal")
LIMIT = 2**20
"""Bytes, more than any body of these tests."""


async def ask(
    session: CleartextSession, peer: Peer, path: str, method: str = "GET", body: bytes | None = None
) -> bytes:
    opened = session.open(method, peer.url + path, headers=(), body=body, timeout=LATER)
    async with opened as response:
        return await response.read(LIMIT)


def answer(asked: Asked) -> None:
    asked.head()
    asked.data(asked.fields[":path"].encode() + asked.body, end=True)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_a_request_beyond_the_last_stream_is_sent_again(method: str) -> None:
    """kube-apiserver closes connections with a bad token by GOAWAY."""

    def act(asked: Asked) -> None:
        if peer.connections == 1:
            asked.go_away(0)
        else:
            answer(asked)

    peer = Peer(act)
    async with peer.session() as session:
        assert await ask(session, peer, "/x", method, b" with body") == b"/x with body"
        assert (peer.connections, len(peer.asked)) == (2, 2)


async def test_a_request_refused_by_goaway_is_sent_again_once() -> None:
    def act(asked: Asked) -> None:
        if peer.connections == 1 and len(peer.asked) == 2:
            first, _ = peer.asked
            first.go_away(first.stream)
            answer(first)
        elif peer.connections == 2:
            answer(asked)

    peer = Peer(act)
    async with peer.session() as session:
        first = asyncio.create_task(ask(session, peer, "/first", "POST", b"!"))
        await peer.was_asked(1)
        assert await ask(session, peer, "/second") == b"/second"
        assert await first == b"/first!"
        assert [each.fields[":path"] for each in peer.asked] == ["/first", "/second", "/second"]


async def test_a_watch_continues_after_goaway() -> None:
    def hold(asked: Asked) -> None:
        asked.head()
        asked.go_away(asked.stream)

    peer = Peer(hold)
    async with peer.session() as session:
        async with session.get(f"{peer.url}/w") as watch:
            chunks = watch.chunks()
            peer.asked[0].data(b"late", end=True)
            assert [chunk async for chunk in chunks] == [b"late"]
        await peer.were_closed(1)


async def test_a_refused_stream_is_sent_again() -> None:
    peer = Peer(lambda asked: asked.refuse() if len(peer.asked) == 1 else answer(asked))
    async with peer.session() as session:
        assert await ask(session, peer, "/x", "POST", b"!") == b"/x!"


async def test_retries_end_at_a_peer_that_refuses_every_stream(reached: list[str]) -> None:
    peer = Peer(lambda asked: asked.go_away(0))
    async with peer.session() as session:
        with pytest.raises(NotProcessed):
            await ask(session, peer, "/x")
        assert len(peer.asked) == SENDS
        assert reached == ["sends of a request"]


async def test_a_request_that_the_peer_may_have_processed_is_not_sent_again() -> None:
    peer = Peer(lambda asked: asked.end_connection())
    async with peer.session() as session:
        with pytest.raises(ConnectionResetError) as raised:
            await ask(session, peer, "/x", "POST", b"!")
        assert not isinstance(raised.value, NotProcessed)
        assert len(peer.asked) == 1


@pytest.mark.parametrize(
    "frames",
    [
        (MAX_FRAME + 1).to_bytes(3) + bytes((0, 0, 0, 0, 0, 1)) + b"x",
        HeadersFrame(1, b"x").serialize() + 3 * ContinuationFrame(1, bytes(MAX_HEAD // 2)).serialize(),
    ],
    ids=["a frame", "a head"],
)
async def test_an_oversized_frame_is_a_protocol_error_before_it_is_complete(frames: bytes) -> None:
    peer = Peer(lambda asked: asked.say(frames))
    async with peer.session() as session:
        with pytest.raises(ConnectionResetError, match="does not speak"):
            await ask(session, peer, "/x")


async def test_a_success_without_a_reader_transfers_only_the_headers() -> None:
    windows: list[int] = []

    def act(asked: Asked) -> None:
        windows.append(asked.window)
        asked.head(200, ("content-length", "9"))

    peer = Peer(act)
    async with peer.session() as session:
        for _ in range(2):
            sent = session.open("PATCH", peer.url + "/x", headers=[NOBODY_READS], body=b"!", timeout=LATER)
            async with sent as response:
                assert (response.status, await response.read(LIMIT)) == (200, b"")
        assert (windows, peer.connections) == ([0, 0], 1)
        await peer.asked[0].reset.wait()
        assert not peer.asked[1].reset.is_set(), "the next frame takes it along"


async def test_the_body_of_a_refusal_is_read_even_if_that_of_a_success_is_not() -> None:
    async def refuse(asked: Asked) -> None:
        asked.head(409)
        await peer.has_window(asked)
        asked.data(b"because", end=True)

    refusing: list[asyncio.Task[None]] = []
    peer = Peer(lambda asked: refusing.append(asyncio.create_task(refuse(asked))))
    async with peer.session() as session:
        sent = session.open("PATCH", peer.url + "/x", headers=[NOBODY_READS], body=b"!", timeout=LATER)
        async with sent as response:
            assert (response.status, await response.read(LIMIT)) == (409, b"because")


@pytest.mark.looptime
@pytest.mark.parametrize("answers", [True, False])
async def test_a_silent_peer_is_pinged(answers: bool) -> None:
    """A router drops a silent connection without a notification."""
    made, sink = connected(Http2Connection)
    response = ResponseSink()
    made.send(fields(), b"", response)
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    for _ in range(4):
        server.receive_data(sink.take())
        if answers:
            made.data_received(server.data_to_send())
        await asyncio.sleep(PING_AFTER)
    assert (response.error is None, sink.is_gone) == (answers, not answers)
    made.connection_lost(None)


@pytest.mark.looptime
async def test_a_ping_measures_the_round_trip() -> None:
    made, sink = connected(Http2Connection)
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    pongs = [made.ping(), made.ping()]
    server.receive_data(sink.take())
    await asyncio.sleep(0.7)
    made.data_received(server.data_to_send())
    assert [await each for each in pongs] == [pytest.approx(0.7)] * 2
    left, lost = made.ping(), made.ping()
    left.cancel()
    assert sink.take().endswith(2 * SettingsFrame(0, {}).serialize()), "the smallest frame that is answered"
    made.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await lost


@pytest.mark.looptime
async def test_an_idle_connection_is_closed() -> None:
    made, sink = connected(Http2Connection)
    await asyncio.sleep(3 * PING_AFTER)
    assert sink.is_gone
    made.connection_lost(None)


@pytest.mark.usefixtures("uncollected")
async def test_a_closed_connection_leaves_no_objects() -> None:
    """Each token that a caller invents has a connection: 500 of them once left 37,000 objects for a full garbage
    collection."""
    made, _ = connected(Http2Connection)
    made.ping().add_done_callback(lambda pong: pong.exception())
    seen = weakref.ref(made)
    made.connection_lost(None)
    await asyncio.sleep(0)
    del made
    assert seen() is None
