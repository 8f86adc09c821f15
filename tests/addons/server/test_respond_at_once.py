"""Whole answers and refusals of the hub, at clients: framing, codes, and ends before the end."""

from __future__ import annotations

import asyncio

import pytest
from mitmproxy import http
from multidict import CIMultiDict

from addons.requests.answers import Answer, ClientLeft, ClientRequest, ClientStream, RelayToCloud
from addons.requests.request_context import context_of
from addons.requests.route_decision import RouteKind
from kube.errors import unavailable
from kube.wire.codec_base import PIECE
from tests.addons.support.answering import REQUEST, Answering, ImmediateAnswers, answer_here, have_answered
from tests.addons.support.lasting_parts import connected
from tests.addons.support.proxied import ANSWER, Raw, watching_proxy
from tests.addons.support.samples import lead

LAST = REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
TEXT = {"Content-Type": "text/plain"}
LARGE = bytes(3 * PIECE + 1)


async def asked(
    answerer: Answering | ImmediateAnswers, request: bytes = LAST
) -> tuple[int, http.Headers, bytes]:
    """Code, headers and body of what a client of HTTP/1.1 gets, to the end of its connection."""
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
async def test_a_client_of_http2_gets_a_complete_answer(body: bytes) -> None:
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, ImmediateAnswers(Answer(body, TEXT, 201)))
        stream = streams.get("/", {})
        await streams.until(lambda: stream in streams.ended)
        assert (streams.status[stream], streams.received[stream]) == (201, len(body))


async def test_a_header_may_come_more_than_once() -> None:
    fields = CIMultiDict([("Warning", "299 - one"), ("Warning", "299 - two")])
    _, headers, _ = await asked(ImmediateAnswers(Answer(b"", fields)))
    assert headers.get_all("Warning") == ["299 - one", "299 - two"]


async def test_the_hub_gets_a_body_as_it_came() -> None:
    """Unpacked it may be a thousand times as long."""
    response = ImmediateAnswers(Answer(b""))
    put = LAST.replace(b"GET", b"PUT")
    request = put.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n")
    with watching_proxy() as proxy:
        answer_here(proxy, response, RouteKind.LOCAL)
        async with proxy.serve(), asyncio.timeout(20):
            await proxy.ask(request + b"packed")
    (wanted,) = response.asked
    assert (wanted.body, wanted.headers["content-encoding"], wanted.target) == (b"packed", "gzip", "/watch")


# -- answers that end before their end --------------------------------------------------------------------------------


async def break_off(stream: ClientStream) -> None:
    await stream.write(b"part")
    raise unavailable("the cloud cannot be reached")


async def test_an_answer_that_breaks_off_has_no_last_chunk_over_http1() -> None:
    code, _, rest = await asked(Answering(break_off), REQUEST)
    assert (code, rest) == (200, b"4\r\npart\r\n")


async def test_an_answer_that_breaks_off_resets_the_stream_of_http2() -> None:
    async with connected(Raw(b"")) as (proxy, streams):
        answer_here(proxy, Answering(break_off))
        stream = streams.get("/watch", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.received[stream] == len(b"part")
        assert proxy.hooks[-1] == "error"


@pytest.mark.parametrize("delay", [0.0, 0.2])
async def test_a_client_that_leaves_ends_its_answer_whatever_the_addons_still_do(delay: float) -> None:
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


async def test_a_client_of_http1_that_leaves_cancels_its_answer() -> None:
    class LeftAlone:
        """Waits for ever, until it is cancelled."""

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
async def test_a_failover_answer_is_sent_to_its_end(breaks: bool) -> None:
    """The error of the server that failed is no news; that of the answer in its place is."""

    async def write(stream: ClientStream) -> None:
        await stream.write(b"own")
        if breaks:
            raise unavailable("no more")

    def run_callbacks(flow: http.HTTPFlow) -> None:
        have_answered(flow, Answering(write), RouteKind.CACHED_RELAY)

    with watching_proxy() as proxy:
        proxy.server.says = b""  # and the end of the connection
        proxy.server._count_stored = False
        proxy.failover = run_callbacks
        async with proxy.serve(), asyncio.timeout(20):
            answer = await proxy.ask(LAST)
    assert answer.endswith(b"3\r\nown\r\n" if breaks else b"3\r\nown\r\n0\r\n\r\n")


# -- what the hub leaves to the cloud ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "answer"), [(ANSWER, b"server"), (b"", b"the hub's")], ids=["answers", "fails each time"]
)
async def test_a_request_left_to_the_cloud_is_sent_buffered_and_returns_to_the_hub_on_failure(
    says: bytes, answer: bytes
) -> None:
    class LeavesToCloud:
        """An answerer that leaves a request to the cloud as often as it says, and then answers it."""

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
