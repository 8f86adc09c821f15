"""The data of a server's response that is retained in memory."""

from __future__ import annotations

import tracemalloc

from kube.http.transport.response_sink import MAX_UNREAD
from kube.http.transport.streamed_response import CHUNK, StreamedResponse


async def test_a_response_in_single_bytes_takes_bounded_memory() -> None:
    """Frames of one byte from a leader once took a hundred times their size in a hub."""
    # A deadline that is never reached.
    far = 1e9
    response, taken = StreamedResponse(far), 0

    def take(_: object, size: int) -> None:
        nonlocal taken
        taken += size

    response.attach(take)
    response.begin(200, [])
    tracemalloc.start()
    for each in range(MAX_UNREAD // 16):
        response.add(each.to_bytes(4)[-1:], 16)
    allocated = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert allocated < MAX_UNREAD // 2
    response.end()
    chunks = [chunk async for chunk in response.chunks()]
    assert b"".join(chunks) == bytes(range(256)) * (MAX_UNREAD // 16 // 256)
    assert max(map(len, chunks)) <= CHUNK
    assert taken == MAX_UNREAD
