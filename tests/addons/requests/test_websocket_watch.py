"""A watch over WebSocket: its framing, the client's messages, and the close by either side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mitmproxy import http
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode

from addons.requests.answers import Answer, Answerer, ClientRequest, ClientStream
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import Route, RouteKind
from addons.requests.websocket_watch import MAX_SENT
from addons.server.serve import serve
from kube.errors import expired, forbidden
from kube.requests.websocket_offer import WebSocketOffer
from kube.wire.encoding import Encoding
from tests.addons.support.noted_request import RecordedRequest, hooks_of

OFFER = WebSocketOffer("AAAA", "13", ("v1",), (), "http://here")


class Events:
    """Answer with a watch: write each piece of a queue, until None or an error."""

    def __init__(self, content_type: str) -> None:
        self._content_type = content_type
        self.pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    async def answer(self, _wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        await stream.begin({"Content-Type": self._content_type})
        while piece := await self.pieces.get():
            if isinstance(piece, Exception):
                raise piece
            await stream.write_all(iter([piece]))
        return None


class Watching:
    """An open watch, and its client."""

    def __init__(self, client: RecordedRequest, events: Events) -> None:
        self.client, self.events = client, events
        self._protocol = FrameProtocol(client=True, extensions=[])
        self._taken = 1

    async def until(self, count: int) -> list[tuple[Opcode, object]]:
        """Return the next messages once this many have arrived."""
        found: list[tuple[Opcode, object]] = []
        while True:
            sent = self.client.parts
            for part in sent[self._taken :]:
                if part[0] == "data":
                    assert isinstance(part[1], bytes)
                    self._protocol.receive_bytes(part[1])
                    found += ((frame.opcode, frame.payload) for frame in self._protocol.received_frames())
            self._taken = len(sent)
            if len(found) >= count:
                return found
            self.client.part_added.clear()
            await self.client.part_added.wait()

    def send(self, data: bytes | bytearray) -> None:
        self.client.inbox.put(bytes(data))

    def ping(self, text: bytes) -> None:
        self.send(self._protocol.ping(text))

    def close(self) -> None:
        self.send(self._protocol.close(CloseReason.GOING_AWAY))


async def _serve(client: RecordedRequest, answerer: Answerer) -> None:
    def decide(_flow: http.HTTPFlow, context: RequestContext) -> None:
        context.route, context.answerer = Route(RouteKind.VIEW, "test"), answerer
        context.websocket = OFFER

    with hooks_of(decide):
        await serve(client)


@asynccontextmanager
async def watching(content_type: str = Encoding.JSON) -> AsyncIterator[Watching]:
    client, events = RecordedRequest(), Events(content_type)
    answering = asyncio.create_task(_serve(client, events))
    await client.part_added.wait()
    yield Watching(client, events)
    events.pieces.put_nowait(None)
    await answering


async def test_json_events_are_text_messages_whatever_the_writes() -> None:
    async with watching() as watch:
        assert watch.client.parts[0] == ("switched", dict(OFFER.switched()))
        for piece in (b'{"n":1}\n{"n":2}\n{"n"', b":3}\n", '{"ö":4}\n'.encode()):
            watch.events.pieces.put_nowait(piece)
        texts = ['{"n":1}\n', '{"n":2}\n', '{"n":3}\n', '{"ö":4}\n']
        assert await watch.until(4) == [(Opcode.TEXT, text) for text in texts]


async def test_protobuf_events_are_binary_messages_without_the_length_prefix() -> None:
    protobuf = f"{Encoding.PROTOBUF};stream=watch"
    first, second = b"event", bytes(range(256)) * 400
    framed = b"".join(len(event).to_bytes(4) + event for event in (first, second, first))
    async with watching(protobuf) as watch:
        for piece in (framed[:2], framed[2:2000], framed[2000:]):
            watch.events.pieces.put_nowait(piece)
        found: dict[int, bytes] = {}
        number = 0
        while len(found) < 3 or number < 3:
            for opcode, payload in await watch.until(1):
                assert opcode is Opcode.BINARY
                assert isinstance(payload, bytes)
                found[number] = found.get(number, b"") + payload
                number += found[number] in (first, second)
        assert found == {0: first, 1: second, 2: first}


async def test_only_the_newest_ping_is_answered_once_the_client_reads() -> None:
    async with watching() as watch:
        watch.client.reads.clear()
        for number in range(100):
            watch.ping(b"%d" % number)
            await asyncio.sleep(0)
        watch.client.reads.set()
        first, *_ = await watch.until(1)
        assert first[0] is Opcode.PONG
        watch.ping(b"last")
        (last,) = await watch.until(1)
        assert last == (Opcode.PONG, b"last") or await watch.until(1) == [(Opcode.PONG, b"last")]
        assert len([part for part in watch.client.parts if part[0] == "data"]) <= 3


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x88\x80" + bytes(4), CloseReason.NORMAL_CLOSURE),
        (b"\x81\x01x", CloseReason.PROTOCOL_ERROR),
        (bytes(MAX_SENT + 1), CloseReason.MESSAGE_TOO_BIG),
        (b"\x81\x81" + bytes(4) + b"\xff", CloseReason.INVALID_FRAME_PAYLOAD_DATA),
    ],
    ids=["an end", "no mask", "too much", "no text"],
)
async def test_a_close_frame_or_a_disconnect_by_the_client_ends_the_watch(
    sent: bytes, code: CloseReason
) -> None:
    async with watching() as watch:
        watch.send(sent)
        ((opcode, payload),) = await watch.until(1)
        assert (opcode, payload) == (Opcode.CLOSE, (code, ""))
        watch.send(b"anything")


async def test_messages_of_the_client_are_dropped() -> None:
    async with watching() as watch:
        watch.send(FrameProtocol(client=True, extensions=[]).send_data("hello"))
        watch.events.pieces.put_nowait(b"{}\n")
        assert await watch.until(1) == [(Opcode.TEXT, "{}\n")]


async def test_a_failure_after_the_handshake_aborts_the_connection() -> None:
    async with watching() as watch:
        watch.events.pieces.put_nowait(expired("too old"))
    assert watch.client.parts[-1][0] == "broken off"


async def test_a_refusal_before_the_handshake_is_an_http_response() -> None:
    async def served(answerer: Answerer) -> RecordedRequest:
        """Serve a watch request to its end."""
        client = RecordedRequest()
        await _serve(client, answerer)
        return client

    class Refuses:
        async def answer(self, _wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
            raise forbidden("not yours")

    client = await served(Refuses())
    assert client.parts[0][:2] == ("head", 403)
