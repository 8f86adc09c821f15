"""A request from its head to its response: refused bodies, early responses, and requests that a server did not
process."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest
from h2.errors import ErrorCodes
from mitmproxy import hooks, http

from addons.server import relay, serve
from addons.server.limits import client_addresses
from addons.server.limits.client_addresses import MAX_REQUEST_BODY
from addons.server.messages import refuse
from addons.telemetry import metrics
from kube.errors import unauthorized
from kube.http.transport.response_sink import SENDS
from tests.addons.support.lasting_parts import ask, connected, watch
from tests.addons.support.observed import until, value_of
from tests.addons.support.proxied import ANSWER, Http2Server, Proxy, Raw, held_bodies, watching_proxy


def refuse_all(proxy: Proxy[Raw]) -> None:
    """Refuse on the request's headers, like the hub refuses an anonymous caller."""

    def decide(flow: http.HTTPFlow) -> None:
        refuse(flow, unauthorized("Unauthorized"))

    proxy.decide = decide


async def test_a_refused_request_is_answered_before_its_body_arrives() -> None:
    async with connected(Raw(ANSWER)) as (proxy, streams):
        refuse_all(proxy)
        stream = streams.send(
            {":method": "POST", ":path": "/", ":scheme": "http", ":authority": "hub"}, end=False
        )
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == 401
        streams.more(stream, b"x" * 30_000)
        assert await ask(streams) == 401
        assert held_bodies() == 0


async def upload(size: int, *, declared: bool, is_streamed: bool) -> tuple[int, bytes]:
    """Send a body of this size; return code and body of the response, and check that its memory is released."""
    async with connected(Raw(ANSWER)) as (proxy, streams):
        proxy.is_request_streamed = is_streamed
        headers = {"content-length": str(size)} if declared else {}
        fields = {":method": "POST", ":path": "/", ":scheme": "http", ":authority": "hub", **headers}
        stream = streams.send(fields, end=False)
        for at in range(0, size, 10_000):
            if stream in streams.ended:
                break
            await streams.window(stream, 10_000)
            streams.more(stream, b"x" * min(10_000, size - at), end=at + 10_000 >= size)
        await streams.until(lambda: stream in streams.ended)
    assert held_bodies() == 0
    return streams.status[stream], streams.bodies[stream]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_collected_body_is_bounded(declared: bool) -> None:
    before = value_of(metrics.REQUESTS_REFUSED.labels("413"))
    code, body = await upload(MAX_REQUEST_BODY + 1, declared=declared, is_streamed=False)
    assert code == json.loads(body)["code"] == 413
    assert value_of(metrics.REQUESTS_REFUSED.labels("413")) == before + 1


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_of_the_bound_is_collected(declared: bool) -> None:
    assert await upload(MAX_REQUEST_BODY, declared=declared, is_streamed=False) == (200, b"server")


async def test_all_collected_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_addresses, "MAX_BODIES", 20_000)
    code, body = await upload(30_000, declared=False, is_streamed=False)
    assert code == json.loads(body)["code"] == 429


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_body_is_buffered_for_a_bounded_time(
    is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request still waiting for its body is refused; a streamed body is no longer buffered for a second server."""
    for module in (serve, relay):
        monkeypatch.setattr(module, "BODY_TIME", 0.3)
    server = Http2Server(100)
    before = value_of(metrics.REQUESTS_REFUSED.labels("408"))
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_request_streamed = is_streamed
        (watched,) = await watch(streams, 1)
        server.is_silent = True
        fields = {":method": "POST", ":path": "/", ":scheme": "http", ":authority": "hub"}
        stream = streams.send(fields, end=False)
        streams.more(stream, b"x" * 100)
        await until(lambda: held_bodies() >= 100)
        await until(lambda: held_bodies() == 0)
        if is_streamed:
            streams.more(stream, b"x" * 100, end=True)
            await server.until(lambda: server.bodies.get((0, 3)) == b"x" * 200)
        else:
            await streams.until(lambda: stream in streams.ended)
            assert streams.status[stream] == 408
        assert watched not in streams.ended
    assert value_of(metrics.REQUESTS_REFUSED.labels("408")) == before + (not is_streamed)


async def test_data_received_while_addons_decide_is_dropped_after_a_refusal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The complete body has already arrived when the head is refused."""
    async with connected(Raw(ANSWER)) as (proxy, streams):
        proxy.hook_delay = 0.05
        refuse_all(proxy)
        assert await ask(streams) == 401
        stream = streams.post("/", {}, b"body")
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == 401
        malformed = {":method": "GET /evil", ":path": "/", ":scheme": "http", ":authority": "hub"}
        stream = streams.send(malformed)
        await streams.until(lambda: stream in streams.ended)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_the_requests_of_one_address_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_addresses, "MAX_REQUESTS", 3)
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        watches = await watch(streams, 3)
        assert await ask(streams) == 429
        streams.cancel(watches[0])
        layer = proxy.layer
        await until(lambda: layer.count <= 2)
        assert await ask(streams) == 200
        long = streams.get("/", {"x-long": "x" * client_addresses.COMMON_HEAD * 2})
        await streams.until(lambda: long in streams.ended)
        assert streams.status[long] == 429, "the head of one counts as another one"


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("how", ["farewell", "refusal"])
async def test_a_request_that_a_server_did_not_process_is_repeated(
    method: str, is_streamed: bool, how: str
) -> None:
    server = Http2Server(100)
    before = value_of(metrics.REQUESTS_RESENT)
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_request_streamed = is_streamed
        (watched,) = await watch(streams, 1)
        server.is_silent = True
        body = b"" if method == "GET" else b"x" * 1000
        fields = {":method": method, ":path": "/", ":scheme": "http", ":authority": "hub"}
        stream = streams.send(fields, end=not body)
        if body:
            streams.more(stream, body, end=True)
        async with asyncio.timeout(5):
            await server.until(lambda: server.streams == [2] and server.bodies.get((0, 3), b"") == body)
        server.is_silent = False
        if how == "farewell":
            server.say_farewell(0, 1)
        else:
            server.reset(0, 3, ErrorCodes.REFUSED_STREAM)
        await streams.until(lambda: stream in streams.ended)
        assert (streams.status[stream], streams.bodies[stream]) == (200, b"server")
        assert watched not in streams.ended
        (again,) = [each for each in server.bodies if each != (0, 3) and each != (0, 1)]
        assert server.bodies[again] == body
        assert (proxy.hooks.count("request"), proxy.hooks.count("response")) == (2, 1), (
            "the addons see it once"
        )
    assert value_of(metrics.REQUESTS_RESENT) == before + 1
    assert held_bodies() == 0


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_a_request_without_its_buffered_body_is_never_repeated(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeleteOptions are in the body: a dry run repeated without them would delete."""
    monkeypatch.setattr(client_addresses, "MAX_BODIES", 100)
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_request_streamed = True
        server.is_silent = True
        fields = {":method": method, ":path": "/", ":scheme": "http", ":authority": "hub"}
        stream = streams.send(fields, end=False)
        streams.more(stream, b"x" * 1000, end=True)
        await server.until(lambda: server.bodies.get((0, 1), b"") == b"x" * 1000)
        server.is_silent = False
        server.reset(0, 1, ErrorCodes.REFUSED_STREAM)
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == 502
        assert server.streams == [1]


@pytest.mark.parametrize("must_be_complete", [True, False])
async def test_buffered_responses_have_a_bound_over_all_requests(
    must_be_complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had a bound of 4 MiB, and there may be four thousand."""
    monkeypatch.setattr(client_addresses, "MAX_ANSWERS_OF_ADDRESS", 50_000)
    server = Http2Server(100)
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_streamed, proxy.failover = False, proxy.lead_to_node
        proxy.stream_too_large = None if must_be_complete else bytes
        held, other = streams.get("/watch", {}), streams.get("/watch", {})
        await server.until(lambda: server.streams == [2])
        server.tell_much(0, 1, 40_000)
        layer = proxy.layer
        await until(lambda: layer.address.answers.size >= 40_000)
        server.tell_much(0, 3, 20_000)
        await streams.until(lambda: other in streams.status)
        assert streams.status[other] == (502 if must_be_complete else 200)
        assert held not in streams.status
        streams.cancel(held)
        await server.until(lambda: (0, 1) in server.resets)
        assert layer.address.answers.size == 0


async def test_retries_end_for_a_server_that_never_processes_the_request() -> None:
    server = Http2Server(100)
    server.refuses = True
    async with server.serve(), connected(server) as (_, streams):
        assert await ask(streams) == 502
    assert sum(server.streams) == SENDS


class EarlyResponder(Raw):
    """A server that responds to the head of a request."""

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.says)
        await reader.read(1)


TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nlarge\r\n0\r\n\r\n"


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_response_before_the_end_of_its_request_is_complete_over_http2(is_streamed: bool) -> None:
    """The client may wait for the end of the response before it sends more."""
    post = {":method": "POST", ":scheme": "https", ":authority": "hub", ":path": "/"}
    server = EarlyResponder(TOO_LARGE)
    async with server.serve(), connected(server) as (proxy, streams):
        proxy.is_request_streamed, proxy.is_streamed = True, is_streamed
        for _ in range(2):
            upload = streams.send(post, end=False)
            await streams.until(partial(streams.ended.__contains__, upload))
            assert (streams.status[upload], streams.bodies[upload]) == (413, b"large")
            streams.more(upload, b"what comes of it", end=True)


async def test_a_response_before_the_end_of_its_request_is_complete_over_http1() -> None:
    with watching_proxy() as proxy:
        proxy.server, proxy.is_request_streamed = EarlyResponder(TOO_LARGE), True
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            try:
                for _ in range(2):
                    writer.write(b"POST / HTTP/1.1\r\nHost: hub\r\nContent-Length: 5\r\n\r\nso")
                    assert (await reader.readuntil(b"\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
                    writer.write(b" on")
            finally:
                writer.close()


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_response_replaced_by_an_addon_sends_no_byte_of_the_server(
    is_streamed: bool,
) -> None:
    """The guard does so if a hook raises: the client must not get bytes that no filter has processed."""
    async with connected(Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: b\r\n\r\nunfiltered")) as (
        proxy,
        streams,
    ):
        hook = proxy.hook

        def answer(event: hooks.Hook) -> None:
            hook(event)
            (flow,) = event.args()
            if event.name == "responseheaders":
                refuse(flow, unauthorized("no"))

        proxy.hook, proxy.is_streamed = answer, is_streamed  # type: ignore[method-assign,assignment]  # an addon behind
        stream = streams.get("/", {})
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == json.loads(streams.bodies[stream])["code"] == 401
        assert proxy.hooks == ["requestheaders", "request", "responseheaders", "response"]
        assert await ask(streams) == 401
