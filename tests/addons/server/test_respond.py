"""The hub's own answers: which parts a client is sent, when, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from types import CoroutineType

import pytest
from mitmproxy import http

from addons.requests.answers import Answer, ClientLeft, ClientRequest, ClientStream, RelayToCloud
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import Route, RouteKind
from addons.server.respond import OwnStream, Sending
from addons.server.serve import serve
from kube.errors import forbidden, unavailable
from kube.wire.codec_base import PIECE
from tests.addons.support.noted_request import NotedRequest, Part, hooks_of

TEXT = {"Content-Type": "text/plain"}


@dataclass
class Says:
    """Answers with a value, or raises it."""

    said: Answer | BaseException

    async def answer(self, _wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
        if isinstance(self.said, Answer):
            return self.said
        raise self.said


async def sent(said: Answer | BaseException, request: NotedRequest | None = None) -> list[Part]:
    """Answer a request, and return the parts that the client is sent."""
    request = request or NotedRequest()

    def decide(_flow: http.HTTPFlow, context: RequestContext) -> None:
        context.route, context.answerer = Route(RouteKind.VIEW, "test"), Says(said)

    with hooks_of(decide) as hooks:
        hooks.append("stream")
        await serve(request)
    return request.parts


def head(length: int | None, status: int = 200) -> Part:
    return "head", status, TEXT if length is None else {**TEXT, "Content-Length": str(length)}


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (Answer(b"", TEXT), [head(0), ("data", b""), ("end",)]),
        (Answer(b"whole", TEXT, 201), [head(5, 201), ("data", b"whole"), ("end",)]),
        (Answer(b"", TEXT, 204), [head(None, 204), ("data", b""), ("end",)]),
        (Answer(iter([b"who", b"le"]), TEXT), [head(None), ("data", b"who"), ("data", b"le"), ("end",)]),
    ],
)
async def test_an_answer_is_sent_in_its_pieces(answer: Answer, parts: list[Part]) -> None:
    assert await sent(answer) == parts


async def test_a_large_answer_is_sent_in_pieces_with_its_length() -> None:
    large = bytes(2 * PIECE + 1)
    first, *pieces, last = await sent(Answer(large, TEXT))
    assert (first, last) == (head(len(large)), ("end",))
    assert [len(bytes(piece)) for _, piece in pieces] == [PIECE, PIECE, 1]  # type: ignore[call-overload]  # of a body


async def test_the_answer_to_a_head_has_its_length_and_no_body() -> None:
    assert await sent(Answer(b"whole", TEXT), NotedRequest("HEAD")) == [head(5), ("end",)]


@pytest.mark.parametrize(
    ("error", "code", "delay"),
    [
        (forbidden("not you"), 403, None),
        (unavailable("later", retry_after=3), 503, "3"),
        (RuntimeError("the secret reason"), 500, None),
        (OSError("the secret disk"), 500, None),
        (RelayToCloud(), 503, "1"),  # the cloud was not allowed to answer
    ],
)
async def test_an_error_is_a_status(error: Exception, code: int, delay: str | None) -> None:
    (_, status, headers), (_, body), _ = await sent(error)
    assert isinstance(headers, dict)
    assert (status, headers.get("Retry-After"), headers["Content-Type"]) == (code, delay, "application/json")
    assert b"secret" not in bytes(body)  # type: ignore[call-overload]  # a piece of a body


async def test_a_request_without_an_answer_is_500() -> None:
    request = NotedRequest()
    with hooks_of(lambda _flow, _context: None) as hooks:
        await serve(request)
    assert request.parts[0][1] == 500
    assert hooks == ["requestheaders", "request", "responseheaders", "response"]


@pytest.mark.parametrize("error", [ClientLeft(), asyncio.CancelledError()])
async def test_a_client_that_left_gets_no_answer(error: BaseException) -> None:
    assert await sent(error) == []


def stream_of(request: NotedRequest) -> OwnStream:
    return OwnStream(Sending(request, http.HTTPFlow(request.client, request.client)))  # type: ignore[arg-type]  # the server is not used


async def begun(request: NotedRequest) -> OwnStream:
    """A stream whose head has gone."""
    stream = stream_of(request)
    with hooks_of(lambda _flow, _context: None) as hooks:
        hooks.append("stream")
        await stream.begin(TEXT)
    return stream


async def test_pieces_are_sent_at_once_while_the_client_reads_and_wait_else() -> None:
    request = NotedRequest()
    stream = await begun(request)
    assert stream.outlet is not None
    assert stream.outlet(b"one")
    request.reads.clear()
    assert not stream.outlet(b"two")
    writing = asyncio.create_task(stream.write(b"two"))
    await asyncio.sleep(0)
    assert request.parts[1:] == [("data", b"one")]
    request.reads.set()
    await writing
    assert request.parts[1:] == [("data", b"one"), ("data", b"two")]


async def test_no_piece_is_made_before_the_client_reads() -> None:
    request, made = NotedRequest(), list[int]()

    def pieces() -> Iterator[bytes]:
        for number in range(2):
            made.append(number)
            yield b"x"

    stream = await begun(request)
    request.reads.clear()
    writing = asyncio.create_task(stream.write_all(pieces()))
    await asyncio.sleep(0)
    assert made == []
    request.reads.set()
    await writing
    assert (made, request.parts[1:]) == ([0, 1], [("data", b"x")] * 2)


async def test_a_stream_with_a_full_client_holds_no_sent_piece() -> None:
    request = NotedRequest()
    stream = await begun(request)

    async def send(data: bytes) -> None:
        request.parts.append(("data", data))
        request.reads.clear()

    request.send = send  # type: ignore[method-assign]  # a socket that is full now
    stream.outlet = None
    writing = stream.write_all([b"one", b"two"])
    task = asyncio.create_task(writing)
    await asyncio.sleep(0)
    assert request.parts[1:] == [("data", b"one")]
    assert isinstance(writing, CoroutineType)
    waiting = writing.cr_await
    assert isinstance(waiting, CoroutineType)
    assert waiting.cr_frame is not None
    assert "piece" not in waiting.cr_frame.f_locals
    task.cancel()
