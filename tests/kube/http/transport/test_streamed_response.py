"""A response as its reader gets it: in pieces as they come, and no more of them than wait for the reader."""

from __future__ import annotations

import asyncio

from kube.http.transport.streamed_response import CHUNK, MAX_UNTAKEN
from tests.kube.support.cleartext import CleartextSession
from tests.kube.support.http2_peer import Asked, Peer

LATER = 10.0
"""Seconds, more than any of these tests takes."""


def hold(asked: Asked) -> None:
    """A watch with one event so far."""
    asked.head()
    asked.data(b"event")


async def test_an_answer_comes_in_pieces(session: CleartextSession) -> None:
    peer = Peer(hold, 100)
    async with peer.serve():
        asked = session.open("GET", peer.url + "/", headers=(), body=None, timeout=LATER)
        async with asked as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"event"
            peer.asked[0].data(b"more")
            assert await anext(chunks) == b"more"
            peer.asked[0].data(b"last", end=True)
            assert [chunk async for chunk in chunks] == [b"last"]
        session.close()
    assert not peer.asked[0].reset.is_set()


async def test_what_nobody_reads_waits_at_the_peer(session: CleartextSession) -> None:
    """A packed watch comes faster than its reader applies what it unpacks to."""
    peer = Peer(lambda asked: asked.head(), 100)
    async with peer.serve(), asyncio.timeout(LATER):
        asked = session.open("GET", peer.url + "/", headers=(), body=None, timeout=LATER)
        async with asked as response:
            sent = got = 0
            for _ in range(2):
                while size := min(peer.asked[0].room, 16 * 1024):
                    peer.asked[0].data(bytes(size))
                    sent += size
                assert sent - got <= MAX_UNTAKEN
                chunks = response.chunks()
                while got < sent:
                    chunk = await anext(chunks)
                    assert len(chunk) < CHUNK + 16 * 1024
                    got += len(chunk)
                await peer.has_room(peer.asked[0])
        assert sent > MAX_UNTAKEN
        await peer.asked[0].reset.wait()
        session.close()
