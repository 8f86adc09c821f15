"""The hub's own answers: which parts a client is told, when, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from types import CoroutineType

import pytest

from addons.requests.answers import Answer, ClientLeft, ClientRequest, ClientStream, ToCloud
from addons.requests.exchange.direct_pieces import TLS_RECORD
from addons.requests.exchange.own_answers import AnswerStream, answer_request
from addons.requests.route_decision import Route, RouteKind
from kube.errors import forbidden, unavailable
from kube.wire.codec_base import PIECE
from tests.addons.support.client_side import NotedClient, Part

TEXT = {"Content-Type": "text/plain"}
LARGE = bytes(2 * PIECE + 1)


@dataclass
class Says:
    """Answers with a value, or raises it."""

    said: Answer | BaseException

    async def answer(self, _wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
        if isinstance(self.said, Answer):
            return self.said
        raise self.said


async def told(said: Answer | BaseException, client: NotedClient | None = None) -> list[list[Part]]:
    """What a client is told, play by play."""
    client = client or NotedClient()
    assert client.context is not None
    client.context.route, client.context.answerer = Route(RouteKind.VIEW, "test"), Says(said)
    assert await answer_request(client)
    return client.plays


def head(length: int | None, status: int = 200) -> Part:
    return "head", status, TEXT if length is None else {**TEXT, "Content-Length": str(length)}


@pytest.mark.parametrize(
    ("answer", "plays"),
    [
        (Answer(b"", TEXT), [[head(0), ("end",)]]),
        (Answer(b"whole", TEXT, 201), [[head(5, 201), ("data", b"whole"), ("end",)]]),
        (Answer(b"", TEXT, 204), [[head(None, 204), ("end",)]]),
        (Answer(b"", TEXT, 304), [[head(None, 304), ("end",)]]),
        (
            Answer(iter([b"who", b"le"]), TEXT),
            [[head(None)], [("data", b"who")], [("data", b"le")], [("end",)]],
        ),
    ],
)
async def test_a_small_answer_is_played_at_once_and_one_in_pieces_as_they_are_made(
    answer: Answer, plays: list[list[Part]]
) -> None:
    assert await told(answer) == plays


async def test_a_large_answer_goes_in_records_and_has_its_length() -> None:
    first, *pieces, last = await told(Answer(LARGE, TEXT))
    assert (first, last) == ([head(len(LARGE))], [("end",)])
    records = [part[1] for played in pieces for part in played if isinstance(part[1], bytes)]
    assert b"".join(records) == LARGE
    assert max(map(len, records)) == TLS_RECORD


async def test_the_answer_to_a_head_has_its_length_and_no_body() -> None:
    client = NotedClient()
    client.is_head = True
    assert await told(Answer(b"whole", TEXT), client) == [[head(5), ("end",)]]


@pytest.mark.parametrize(
    ("error", "code", "delay"),
    [
        (forbidden("not you"), 403, None),
        (unavailable("later", retry_after=3), 503, "3"),
        (RuntimeError("the secret reason"), 500, None),
        (ToCloud(), 503, "1"),  # nobody has said that the cloud may answer
    ],
)
async def test_what_goes_wrong_is_a_status(error: Exception, code: int, delay: str | None) -> None:
    ((begun, (_, body), _),) = await told(error)
    _, status, headers = begun
    assert isinstance(headers, dict)
    assert (status, headers.get("Retry-After"), headers["Content-Type"]) == (code, delay, "application/json")
    assert b"secret" not in bytes(body)  # type: ignore[call-overload]  # a piece of a body


async def test_a_request_that_nobody_answers_is_an_error() -> None:
    client = NotedClient()
    assert await answer_request(client)
    assert client.told[0][1] == 500


async def test_a_request_may_be_left_to_the_cloud() -> None:
    client = NotedClient()
    assert client.context is not None
    client.context.answerer, client.context.relay = Says(ToCloud()), lambda _: None
    client.context.route = Route(RouteKind.CACHED_RELAY, "test")
    assert not await answer_request(client)
    assert (client.was_left_to_cloud, client.plays) == (True, [])


@pytest.mark.parametrize("error", [ClientLeft(), asyncio.CancelledError()])
async def test_a_client_that_left_is_told_nothing(error: BaseException) -> None:
    assert await told(error) == []


async def test_an_answer_that_has_begun_is_broken_off() -> None:
    client = NotedClient()
    stream = AnswerStream(client)
    await stream.begin(TEXT)
    await stream.fail(unavailable("the cloud cannot be reached"))
    assert client.plays == [[head(None)], [("broken off", "the cloud cannot be reached", False)]]


async def test_nobody_can_write_to_a_client_that_has_left() -> None:
    client = NotedClient()
    stream = AnswerStream(client)
    await stream.begin(TEXT)
    client.is_over = True
    with pytest.raises(ClientLeft):
        await stream.write(b"late")
    assert client.plays == [[head(None)]]


async def test_pieces_go_the_short_way_while_that_has_room() -> None:
    client, direct = NotedClient(), list[bytes]()

    def send(piece: bytes) -> bool:
        has_room = len(direct) < 2
        direct.extend([piece] * has_room)
        return has_room

    client.direct_sends = send
    stream = AnswerStream(client)
    await stream.begin(TEXT)
    await stream.write_all([b"one", b"two", b"three"])
    assert (direct, client.plays[1:]) == ([b"one", b"two"], [[("data", b"three")]])


async def test_no_piece_is_made_before_the_client_has_room_for_it() -> None:
    client, made = NotedClient(), list[int]()

    def pieces() -> Iterator[bytes]:
        for number in range(2):
            made.append(number)
            yield b"x"

    stream = AnswerStream(client)
    client.reads.clear()
    writing = asyncio.create_task(stream.write_all(pieces()))
    await asyncio.sleep(0)
    assert made == []
    client.reads.set()
    await writing
    assert (made, client.told) == ([0, 1], [("data", b"x")] * 2)


async def test_a_stream_whose_client_does_not_read_holds_no_piece_that_went_out() -> None:
    client, direct = NotedClient(), list[bytes]()

    def send(piece: bytes) -> bool:
        direct.append(piece)
        client.reads.clear()
        return True

    client.direct_sends = send
    stream = AnswerStream(client)
    await stream.begin(TEXT)
    writing = stream.write_all([b"one", b"two"])
    task = asyncio.create_task(writing)
    await asyncio.sleep(0)
    assert direct == [b"one"]
    assert isinstance(writing, CoroutineType)
    assert writing.cr_frame is not None
    assert "piece" not in writing.cr_frame.f_locals
    task.cancel()
