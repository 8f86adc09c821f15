"""The hub's own responses: the parts that a client gets, their timing, and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from types import CoroutineType

import pytest
from mitmproxy import http
from multidict import CIMultiDict

from addons.requests.answers import Answer, ClientLeft, ClientRequest, ClientStream, RelayToCloud
from addons.requests.request_context import RequestContext, context_of
from addons.requests.route_decision import Route, RouteKind
from addons.server.respond import OwnStream, Sending
from addons.server.serve import serve
from kube.errors import forbidden, unavailable
from kube.wire.codec_base import CHUNK
from tests.addons.support.answering import REQUEST, Answering, ImmediateAnswers, answer_here, have_answered
from tests.addons.support.lasting_parts import connected
from tests.addons.support.noted_request import Part, RecordedRequest, hooks_of
from tests.addons.support.proxied import ANSWER, Raw, watching_proxy
from tests.addons.support.samples import lead

TEXT = {"Content-Type": "text/plain"}


@dataclass
class FixedAnswerer:
    """Return a response, or raise an error."""

    said: Answer | BaseException

    async def answer(self, _wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
        if isinstance(self.said, Answer):
            return self.said
        raise self.said


async def sent(said: Answer | BaseException, request: RecordedRequest | None = None) -> list[Part]:
    """Answer a request; return the parts that the client gets."""
    request = request or RecordedRequest()

    def decide(_flow: http.HTTPFlow, context: RequestContext) -> None:
        context.route, context.answerer = Route(RouteKind.VIEW, "test"), FixedAnswerer(said)

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
async def test_a_response_is_sent_in_its_pieces(answer: Answer, parts: list[Part]) -> None:
    assert await sent(answer) == parts


async def test_a_large_response_is_sent_in_pieces_with_its_length() -> None:
    large = bytes(2 * CHUNK + 1)
    first, *pieces, last = await sent(Answer(large, TEXT))
    assert (first, last) == (head(len(large)), ("end",))
    assert [len(bytes(piece)) for _, piece in pieces] == [CHUNK, CHUNK, 1]  # type: ignore[call-overload]  # of a body


async def test_a_response_to_head_has_its_length_and_no_body() -> None:
    assert await sent(Answer(b"whole", TEXT), RecordedRequest("HEAD")) == [head(5), ("end",)]


@pytest.mark.parametrize(
    ("error", "code", "delay"),
    [
        (forbidden("not you"), 403, None),
        (unavailable("later", retry_after=3), 503, "3"),
        (RuntimeError("the secret reason"), 500, None),
        (OSError("the secret disk"), 500, None),
        (RelayToCloud(), 503, "1"),  # this route is not allowed to reach the cloud
    ],
)
async def test_an_error_is_sent_as_a_status(error: Exception, code: int, delay: str | None) -> None:
    (_, status, headers), (_, body), _ = await sent(error)
    assert isinstance(headers, dict)
    assert (status, headers.get("Retry-After"), headers["Content-Type"]) == (code, delay, "application/json")
    assert b"secret" not in bytes(body)  # type: ignore[call-overload]  # a piece of a body


async def test_a_request_without_a_response_is_500() -> None:
    request = RecordedRequest()
    with hooks_of(lambda _flow, _context: None) as hooks:
        await serve(request)
    assert request.parts[0][1] == 500
    assert hooks == ["requestheaders", "request", "responseheaders", "response"]


@pytest.mark.parametrize("error", [ClientLeft(), asyncio.CancelledError()])
async def test_a_disconnected_client_gets_no_response(error: BaseException) -> None:
    assert await sent(error) == []


def stream_of(request: RecordedRequest) -> OwnStream:
    return OwnStream(Sending(request, http.HTTPFlow(request.client, request.client)))  # type: ignore[arg-type]  # the server is not used


async def begun(request: RecordedRequest) -> OwnStream:
    """Start a stream whose head has been sent."""
    stream = stream_of(request)
    with hooks_of(lambda _flow, _context: None) as hooks:
        hooks.append("stream")
        await stream.begin(TEXT)
    return stream


async def test_pieces_are_sent_at_once_to_a_reading_client_and_wait_for_a_slow_one() -> None:
    request = RecordedRequest()
    stream = await begun(request)
    assert stream.try_write is not None
    assert stream.try_write(b"one")
    request.reads.clear()
    assert not stream.try_write(b"two")
    writing = asyncio.create_task(stream.write(b"two"))
    await asyncio.sleep(0)
    assert request.parts[1:] == [("data", b"one")]
    request.reads.set()
    await writing
    assert request.parts[1:] == [("data", b"one"), ("data", b"two")]


async def test_a_piece_is_produced_only_when_the_client_reads() -> None:
    request, made = RecordedRequest(), list[int]()

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


async def test_a_stream_that_waits_for_its_client_retains_no_sent_piece() -> None:
    request = RecordedRequest()
    stream = await begun(request)

    async def send(data: bytes) -> None:
        request.parts.append(("data", data))
        request.reads.clear()

    request.send = send  # type: ignore[method-assign]  # a socket that is full now
    stream.try_write = None
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


# -- complete responses at clients ---------------------------------------------------------------------------------


LAST = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
LARGE = bytes(3 * CHUNK + 1)


async def asked(
    answerer: Answering | ImmediateAnswers, request: bytes = LAST
) -> tuple[int, http.Headers, bytes]:
    """Return code, headers and body that an HTTP/1.1 client gets until its connection closes."""
    with watching_proxy() as proxy:
        answer_here(proxy, answerer)
        async with proxy.serve(), asyncio.timeout(20):
            head, _, body = (await proxy.ask(request)).partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    split = (each.partition(b": ") for each in fields)
    headers = http.Headers([(name, value) for name, _, value in split])
    return int(line.split()[1]), headers, body


@pytest.mark.parametrize("body", [b"", b"whole", LARGE, iter([b"who", b"le"])], ids=["", "1", "3", "pieces"])
async def test_pipelined_requests_of_http1_are_answered_in_order(body: bytes) -> None:
    response = ImmediateAnswers(Answer(body, TEXT))
    code, headers, rest = await asked(response, REQUEST + LAST)
    assert code == 200
    if isinstance(body, bytes):
        assert headers["Content-Length"] == str(len(body))
        first, second = rest[: len(body)], rest[-len(body) :] if body else b""
        assert first == second == body
    else:
        assert headers["Transfer-Encoding"] == "chunked"
        assert rest.startswith(b"3\r\nwho\r\n2\r\nle\r\n0\r\n\r\nHTTP/1.1 200")
    assert len(response.asked) == 2


@pytest.mark.parametrize("body", [b"", b"whole", LARGE])
async def test_an_http2_client_gets_a_complete_response(body: bytes) -> None:
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, ImmediateAnswers(Answer(body, TEXT, 201)))
        stream = streams.get("/", {})
        await streams.until(lambda: stream in streams.ended)
        assert (streams.status[stream], streams.received[stream]) == (201, len(body))


async def test_a_repeated_header_is_sent_repeatedly() -> None:
    fields = CIMultiDict([("Warning", "299 - one"), ("Warning", "299 - two")])
    _, headers, _ = await asked(ImmediateAnswers(Answer(b"", fields)))
    assert headers.get_all("Warning") == ["299 - one", "299 - two"]


async def test_a_request_body_is_passed_to_the_hub_without_decompression() -> None:
    """Decompressed it may be a thousand times as long."""
    response = ImmediateAnswers(Answer(b""))
    put = LAST.replace(b"GET", b"PUT")
    request = put.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n")
    with watching_proxy() as proxy:
        answer_here(proxy, response, RouteKind.LOCAL)
        async with proxy.serve(), asyncio.timeout(20):
            await proxy.ask(request + b"packed")
    (wanted,) = response.asked
    assert (wanted.body, wanted.headers["content-encoding"], wanted.target) == (b"packed", "gzip", "/watch")


# -- aborted responses ---------------------------------------------------------------------------------------------


async def break_off(stream: ClientStream) -> None:
    await stream.write(b"part")
    raise unavailable("the cloud cannot be reached")


async def test_an_aborted_response_has_no_last_chunk_over_http1() -> None:
    code, _, rest = await asked(Answering(break_off), REQUEST)
    assert (code, rest) == (200, b"4\r\npart\r\n")


async def test_an_aborted_response_resets_its_http2_stream() -> None:
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(break_off))
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len(b"part")
        assert proxy.hooks[-1] == "error"


@pytest.mark.parametrize("delay", [0.0, 0.2])
async def test_a_disconnect_ends_the_response_even_while_addons_run(delay: float) -> None:
    async def wait(_stream: ClientStream) -> None:
        await asyncio.Event().wait()

    answering = Answering(wait)
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, answering)
        proxy.hook_delay = delay
        stream = streams.get("/watch", {})
        await answering.begun.wait()
        if not delay:
            await streams.until(lambda: stream in streams.status)
        streams.cancel(stream)
        await answering.over.wait()


async def test_a_disconnected_http1_client_cancels_its_response() -> None:
    class LeftAlone:
        """Wait for ever, until cancelled."""

        def __init__(self) -> None:
            self.began, self.over = asyncio.Event(), asyncio.Event()

        async def answer(self, _wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.over.set()
            raise ClientLeft

    alone = LeftAlone()
    with watching_proxy() as proxy:
        proxy.decide = lambda flow: have_answered(flow, alone, RouteKind.VIEW)
        async with proxy.serve(), asyncio.timeout(20):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST)
            await alone.began.wait()
            writer.transport.abort()
            await alone.over.wait()


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_failover_response_is_sent_completely(breaks: bool) -> None:
    """The failed server's error is already handled; only an error of the replacing response counts."""

    async def write(stream: ClientStream) -> None:
        await stream.write(b"own")
        if breaks:
            raise unavailable("no more")

    def run_callbacks(flow: http.HTTPFlow) -> None:
        have_answered(flow, Answering(write), RouteKind.CACHED_RELAY)

    with watching_proxy() as proxy:
        proxy.server.says = b""  # the connection then closes
        proxy.server._count_stored = False
        proxy.failover = run_callbacks
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(LAST)
    assert answer.endswith(b"3\r\nown\r\n" if breaks else b"3\r\nown\r\n0\r\n\r\n")


# -- requests that fall through to the cloud -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "answer"), [(ANSWER, b"server"), (b"", b"the hub's")], ids=["answers", "fails each time"]
)
async def test_a_request_that_falls_through_to_the_cloud_returns_to_the_hub_on_failure(
    says: bytes, answer: bytes
) -> None:
    class LeavesToCloud:
        """An answerer that passes a request on to the cloud a number of times, then answers it."""

        def __init__(self, times: int) -> None:
            self.times = times
            self.bodies: list[bytes] = []

        async def answer(self, wanted: ClientRequest, _stream: ClientStream) -> Answer | None:
            self.bodies.append(wanted.body)
            if len(self.bodies) <= self.times:
                raise RelayToCloud
            return Answer(b"the hub's", TEXT)

    answerer = LeavesToCloud(times=3)
    with watching_proxy() as proxy:
        proxy.server = Raw(says)
        proxy.is_streamed = False

        def answer_here_again(flow: http.HTTPFlow) -> None:
            have_answered(flow, answerer, RouteKind.CACHED_RELAY)
            context = context_of(flow)
            assert context is not None
            context.relay, context.upstream = relay, None

        def relay(flow: http.HTTPFlow) -> None:
            context = context_of(flow)
            assert context is not None
            context.answerer, context.failover = None, answer_here_again
            lead(context, proxy.to_server)

        proxy.decide = answer_here_again
        request = LAST.replace(b"GET", b"PUT").replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\nbody")
        async with proxy.serve(), asyncio.timeout(20):
            got = await proxy.ask(request)
    assert got.endswith(answer)
    assert [each.rpartition(b"\r\n\r\n")[2] for each in proxy.server.got] == [b"body"] * (1 if says else 3)
    assert answerer.bodies == [b"body"] * (1 if says else 4)
