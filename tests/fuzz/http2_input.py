"""Fuzz target: input from a peer on the hub's own HTTP/2 connection: each response completes, or is aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from h2.config import H2Configuration
from h2.connection import H2Connection

from kube.http.transport.http2_connection import Http2Connection
from kube.http.transport.streamed_response import StreamedResponse
from tests.kube.support.sink import Sink, connected

FIELDS = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"a:1"), (b":path", b"/")]
LARGE = b"body" * 50_000
"""More bytes than a peer's initial window."""
FAR = 1e9
"""A deadline that is never reached."""


def seeds() -> Iterator[bytes]:
    """Yield servers' answers to two requests."""

    def answer(*steps: Callable[[H2Connection], None]) -> bytes:
        server = H2Connection(H2Configuration(client_side=False, validate_outbound_headers=False))
        server.initiate_connection()
        server.receive_data(asyncio.run(_asked()))
        for step in steps:
            step(server)
        return b"\xff" + server.data_to_send()

    def head(server: H2Connection) -> None:
        server.send_headers(1, [(":status", "200"), ("content-type", "application/json")])

    yield answer()
    yield answer(head, lambda server: server.send_data(1, b"abc", end_stream=True))
    yield answer(head, lambda server: server.reset_stream(1))
    yield answer(
        head, lambda server: server.reset_stream(3), lambda server: server.increment_flow_control_window(9)
    )
    yield answer(lambda server: server.send_headers(3, [(":status", "200")], end_stream=True))
    yield answer(lambda server: server.send_headers(1, [(":status", "two hundred")]))
    yield answer(lambda server: server.send_headers(1, [(":status", "200"), (b"n\xff", "x")]))
    yield answer(head, lambda server: server.close_connection(last_stream_id=1))
    yield answer(
        lambda server: server.send_headers(3, [(":status", "100")]), lambda server: server.ping(b"12345678")
    )
    yield answer(lambda server: server.update_settings({4: 0, 3: 1}))


def run(data: bytes) -> None:
    asyncio.run(_feed(data[0] + 1 if data else 1, data[1:]))


def _open() -> tuple[Http2Connection, Sink, list[StreamedResponse]]:
    connection, sink = connected(Http2Connection)
    responses = [StreamedResponse(FAR) for _ in range(2)]
    for response, body in zip(responses, (b"", LARGE), strict=True):
        response.attach(connection.acknowledge_data)
        connection.send(FIELDS, body, response)
    return connection, sink, responses


async def _asked() -> bytes:
    connection, sink, _ = _open()
    connection.connection_lost(None)
    return sink.take()


async def _feed(step: int, stream: bytes) -> None:
    connection, sink, responses = _open()
    for at in range(0, len(stream), step):
        if not sink.is_closing():
            connection.data_received(stream[at : at + step])
    connection.connection_lost(None)
    for each in responses:
        # No client waits for ever: its response is complete, or aborted.
        assert each.has_ended or each.error
        assert each.status == 0 or 100 <= each.status <= 999
