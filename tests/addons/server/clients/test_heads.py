"""Request heads in both versions of HTTP: oversized heads, trailers, and bodies that continue after the response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import h11
import pytest
from h2.errors import ErrorCodes
from hyperframe.frame import ContinuationFrame, HeadersFrame
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.server import serve
from addons.server.accept import accepted
from addons.server.clients import http1_client
from addons.server.clients.http2_client import LARGEST_HEADER_LIST
from addons.server.limits.http2_frames import MAX_FRAME, MAX_HEAD
from addons.server.limits.request_head import MAX_HEADERS, MAX_TARGET
from addons.server.messages import refuse
from addons.telemetry import metrics
from kube.errors import forbidden
from tests.addons.support.lasting_parts import ask, connected
from tests.addons.support.observed import until, value_of
from tests.addons.support.proxied import ANSWER, FROM_NODE, Http2Server, Proxy, Raw, held_bodies
from tests.hub.support.http2 import Streams

HEAD = b"POST http://hub/api HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = b"5\r\nhello\r\n0\r\n"
ENDLESS = {
    "request line": (414, b"GET http://hub/", b"x" * 1000),
    "header": (431, b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nX: ", b"x" * 1000),
    "headers": (431, b"GET http://hub/ HTTP/1.1\r\n", b"X: yyyyyyyyyyyyyy\r\n" * 50),
}


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()):
        yield Proxy(Raw(ANSWER), Raw(FROM_NODE))


def status(answer: bytes) -> int:
    """Return the code of a response whose body is a Status."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    said = json.loads(body)
    assert said["kind"] == "Status"
    assert head.startswith(b"HTTP/1.1 %d " % said["code"])
    return int(said["code"])


async def test_http2_without_tls_is_refused_with_505(proxy: Proxy[Raw]) -> None:
    async with proxy.serve(), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
        answer = await reader.read()
        assert status(answer) == 505
        assert b"HTTP/2 needs TLS" in answer
        writer.close()
    assert not proxy.server.got


@pytest.mark.parametrize(("code", "begin", "more"), ENDLESS.values(), ids=ENDLESS)
async def test_a_head_beyond_the_bound_is_refused(
    proxy: Proxy[Raw], code: int, begin: bytes, more: bytes
) -> None:
    async with proxy.serve(), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(begin)
        for _ in range(2 * MAX_HEADERS // len(more)):
            writer.write(more)
        # Unread bytes of the head reset the connection after the response.
        assert status(await reader.read(2**16)) == code
        writer.close()
    assert not proxy.server.got


@pytest.mark.parametrize(
    ("code", "request_"),
    [
        (414, b"GET http://hub/" + b"x" * MAX_TARGET + b" HTTP/1.1\r\nHost: hub\r\n\r\n"),
        (431, b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nX: " + b"y" * MAX_HEADERS + b"\r\n\r\n"),
        (400, b"GET http://hub/ HTTP/1.1\r\n\r\n"),
        (400, b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nX: a\rb\r\n\r\n"),
        (400, b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nX: a\x00b\r\n\r\n"),
        (400, HEAD + CHUNKED + b"X: trailer\r\n\r\n"),
        (400, b"nonsense\r\n\r\n"),
        *(
            (501, b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: %b\r\n\r\n" % coding)
            for coding in (b"identity", b"xchunked", b"chunked, identity")
        ),
        *(
            (400, b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\n" + headers + b"\r\n\r\n")
            for headers in (
                b"Content-Length: 1\r\nTransfer-Encoding: chunked",
                b"Transfer-Encoding : chunked",
                b"Content-Length: 0\r\nContent-Length: 5",
                b"Content-Length: +1",
                b"Content-Length: 1_0",
                b"Authorization : Bearer t",
                b"Authorization\xc2\xa0: Bearer t",
                b"Authorization: Bearer\r\n t",
            )
        ),
    ],
)
async def test_an_invalid_http1_request_is_refused(proxy: Proxy[Raw], code: int, request_: bytes) -> None:
    counted = metrics.REQUESTS_REFUSED.labels(str(code))
    before = value_of(counted)
    async with proxy.serve(), asyncio.timeout(10):
        assert status(await proxy.ask(request_)) == code
    assert not proxy.server.got
    assert value_of(counted) == before + 1


async def test_a_chunked_body_without_trailers_is_relayed(proxy: Proxy[Raw]) -> None:
    proxy.failover = None
    async with proxy.serve(), asyncio.timeout(10):
        close = HEAD.replace(b"Host", b"Connection: close\r\nHost")
        assert (await proxy.ask(close + CHUNKED + b"\r\n")).endswith(b"server")


async def test_a_servers_trailers_are_dropped(proxy: Proxy[Raw], caplog: pytest.LogCaptureFixture) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKED + b"X: trailer\r\n\r\n"
    proxy.server.says = chunked
    async with proxy.serve(), asyncio.timeout(10):
        answer = await proxy.ask(b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert b"hello" in answer
    assert b"trailer" not in answer
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_bytes_after_a_response_are_discarded_up_to_a_bound(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write_on(writer: asyncio.StreamWriter) -> None:
        """Write until the hub accepts no more."""
        while True:
            writer.write(b"x" * 1000)
            await writer.drain()

    monkeypatch.setattr(http1_client, "MAX_DISCARDED", 10_000)
    async with proxy.serve(), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"POST http://hub/ HTTP/1.1\r\nHost: hub\r\nContent-Length: 99999999\r\n\r\n")
        assert b" 413 " in await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(ConnectionError):
            await write_on(writer)


async def test_a_slow_body_is_refused_and_its_rest_discarded(
    proxy: Proxy[Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`addons.connections` closes a client that takes too long."""
    monkeypatch.setattr(serve, "BODY_TIME", 0.5)
    async with proxy.serve(), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\n\r\n")
        await reader.readuntil(b"server")
        handler = accepted[proxy.handlers[0].client.id]
        assert handler.waits_since(1.0) is None
        writer.write(b"POST http://hub/ HTTP/1.1\r\nHost: hub\r\nContent-Length: 9\r\n\r\n1234")
        await until(lambda: held_bodies() >= 4)
        assert handler.waits_since(1.0) is None
        assert b" 408 " in await reader.readuntil(b"\r\n\r\n")
        assert held_bodies() == 0
        await until(lambda: handler.waits_since(1.0) is not None)
        writer.transport.abort()


PSEUDO = {":method": "GET", ":path": "/", ":scheme": "http", ":authority": "hub"}


def many_headers(size: int) -> dict[str, str]:
    """Return headers with more bytes than the bound, in parts that h2 encodes fast."""
    return {f"x-{number}": "y" * 2000 for number in range(size // 2000 + 1)}


MALFORMED = {
    "method": {**PSEUDO, ":method": "GET /evil"},
    "NUL": {**PSEUDO, "x": "a\x00b"},
    "carriage return": {**PSEUDO, "x": "a\rb"},
    "space in the path": {**PSEUDO, ":path": "/a b"},
    "upper case": {**PSEUDO, "X": "a"},
    "no path": {each: PSEUDO[each] for each in PSEUDO if each != ":path"},
    "unknown pseudo-header": {**PSEUDO, ":x": "a"},
    "authority": {**PSEUDO, ":authority": "hub:port"},
    "of a connection": {**PSEUDO, "connection": "authorization"},
    "line feed": {**PSEUDO, "x": "a\nauthorization: Bearer t"},
    "line in a name": {**PSEUDO, "x\r\nauthorization": "Bearer t"},
    "blank in a name": {**PSEUDO, "authorization ": "Bearer t"},
    "line in the path": {**PSEUDO, ":path": "/ HTTP/1.1\r\nAuthorization: Bearer t\r\nX: "},
    "user in the authority": {**PSEUDO, ":authority": "a@hub"},
    "line in the scheme": {**PSEUDO, ":scheme": "http\r\nx"},
    "another host": {**PSEUDO, "host": "other"},
    "a body's framing": {**PSEUDO, "transfer-encoding": "chunked"},
    "an upgrade": {**PSEUDO, ":protocol": "websocket"},
    "a length without a body": {**PSEUDO, "content-length": "30"},
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
async def test_an_invalid_http2_request_is_400_and_spares_parallel_streams(fields: dict[str, str]) -> None:
    server = Raw(ANSWER)
    async with connected(server) as (_, streams):
        stream = streams.send(fields)
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == json.loads(streams.bodies[stream])["code"] == 400
        assert not server.got
        # The client's other streams continue.
        assert await ask(streams) == 200


@pytest.mark.parametrize(
    "length", [{}, {"content-length": "0"}, {"content-length": "4"}], ids=["none", "0", "4"]
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_http2_body_has_the_same_end_for_an_http1_server(
    length: dict[str, str], is_streamed: bool
) -> None:
    server = Raw(ANSWER)
    body = b"" if length == {"content-length": "0"} else b"GET "
    async with connected(server) as (proxy, streams):
        proxy.is_request_streamed = is_streamed
        stream = streams.send({**PSEUDO, ":method": "POST", **length}, end=not body)
        if body:
            streams.more(stream, body, end=True)
        await streams.until(lambda: stream in streams.ended)
        assert (streams.status[stream], await ask(streams)) == (200, 200)
    head, _, rest = server.got[0].partition(b"\r\n\r\n")
    is_in_chunks = b"transfer-encoding: chunked" in head
    assert is_in_chunks or rest == body
    assert not (is_in_chunks and length)


@pytest.mark.parametrize(
    ("code", "fields"),
    [(414, {":path": "/" + "x" * MAX_TARGET}), (431, many_headers(MAX_HEADERS))],
    ids=["target", "headers"],
)
async def test_an_http2_head_is_accepted_up_to_the_bound(code: int, fields: dict[str, str]) -> None:
    server = Raw(ANSWER)
    async with connected(server) as (_, streams):
        stream = streams.send({**PSEUDO, **fields})
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == json.loads(streams.bodies[stream])["code"] == code
    assert not server.got


async def test_headers_far_beyond_the_bound_close_the_connection() -> None:
    async with connected(Raw(ANSWER)) as (proxy, streams):
        streams.send({**PSEUDO, **many_headers(LARGEST_HEADER_LIST)})
        await streams.gone()
        assert not proxy.server.got


@pytest.mark.parametrize(
    "frames",
    [
        (MAX_FRAME + 1).to_bytes(3) + bytes((0, 0, 0, 0, 0, 1)) + b"x",
        HeadersFrame(1, b"x").serialize()
        + (MAX_HEAD // MAX_FRAME + 1) * ContinuationFrame(1, bytes(MAX_FRAME)).serialize(),
    ],
    ids=["a frame", "a head"],
)
async def test_an_oversized_frame_closes_the_connection_before_it_is_complete(frames: bytes) -> None:
    """h2 would first buffer 16 MiB of the frame, or 64 frames of headers, for each connection."""
    refused = metrics.CONNECTIONS_REFUSED.labels("frame")
    before = value_of(refused)
    async with connected(Raw(ANSWER)) as (proxy, streams):
        streams.say(frames)
        await streams.gone()
        assert not proxy.server.got
    assert value_of(refused) == before + 1


@pytest.mark.parametrize("server", [Raw(ANSWER), Http2Server(100)], ids=["HTTP/1.1", "HTTP/2"])
async def test_http2_trailers_are_refused(
    server: Raw | Http2Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with server.serve(), connected(server) as (_, streams):
        stream = streams.post("/", {}, b"body", trailers={"x": "trailer"})
        await streams.until(lambda: stream in streams.ended)
        assert streams.status[stream] == json.loads(streams.bodies[stream])["code"] == 400
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def refused(flow: http.HTTPFlow) -> None:
    refuse(flow, forbidden("not you"))


def served(_flow: http.HTTPFlow) -> None:
    pass


@pytest.mark.parametrize(
    ("answer", "decide", "code"),
    [(ANSWER, refused, 403), (b"", served, 502)],
    ids=["the hub's", "mitmproxy's"],
)
async def test_a_response_to_head_over_http2_has_no_body(
    answer: bytes, decide: Callable[[http.HTTPFlow], None], code: int
) -> None:
    async with connected(Raw(answer)) as (proxy, streams):
        proxy.decide = decide
        heads = [streams.send({**PSEUDO, ":method": "HEAD"}) for _ in range(2)]
        got = streams.get("/", {})
        await streams.until(lambda: streams.ended.issuperset([*heads, got]))
        assert {streams.status[each] for each in (*heads, got)} == {code}
        assert [streams.bodies[each] for each in heads] == [b"", b""]
        assert json.loads(streams.bodies[got])["code"] == code


async def test_the_refusal_of_a_malformed_head_request_over_http2_has_no_body() -> None:
    async with connected(Raw(ANSWER)) as (_, streams):
        stream = streams.send({**PSEUDO, ":method": "HEAD", "x": "a\x00b"})
        await streams.until(lambda: stream in streams.ended)
        assert (streams.status[stream], streams.bodies[stream]) == (400, b"")
        assert streams.resets[stream] == ErrorCodes.PROTOCOL_ERROR


async def test_a_malformed_request_over_http2_gets_400_with_the_reason_and_a_reset() -> None:
    async with connected(Raw(ANSWER)) as (_, streams):
        stream = streams.send({**PSEUDO, "Upper": "case"})
        await streams.until(lambda: stream in streams.ended)
        assert "malformed" in json.loads(streams.bodies[stream])["message"]
        assert (streams.status[stream], streams.resets[stream]) == (400, ErrorCodes.PROTOCOL_ERROR)
        assert await ask(streams) == 200, "the other streams go on"


async def test_a_request_pipelined_after_a_refused_head_request_is_answered(proxy: Proxy[Raw]) -> None:
    proxy.decide = refused
    async with proxy.serve():
        connection = h11.Connection(h11.CLIENT)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        for method in ("HEAD", "HEAD", "GET"):
            writer.write(f"{method} http://hub/ HTTP/1.1\r\nHost: hub\r\n\r\n".encode())
            connection.send(h11.Request(method=method, target="/", headers=[("Host", "hub")]))
            connection.send(h11.EndOfMessage())
            body = b""
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(65536))
                elif isinstance(event, h11.Response):
                    assert event.status_code == 403
                elif isinstance(event, h11.Data):
                    body += event.data
            assert bool(body) is (method == "GET")
            connection.start_next_cycle()
        writer.close()


async def test_mitmproxys_own_error_response_to_head_has_no_body(proxy: Proxy[Raw]) -> None:
    proxy.server.says, proxy.failover = b"", None
    async with proxy.serve():
        answer = await proxy.ask(b"HEAD http://hub/ HTTP/1.1\r\nHost: hub\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert answer.endswith(b"\r\n\r\n")


async def test_a_client_with_many_streams_lets_another_client_proceed() -> None:
    """All streams are answered; a client that connects later does not wait for the last of them."""
    many = 400
    with taddons.context(Proxyserver()):
        proxy = Proxy(Http2Server(1000), Raw(FROM_NODE))
        proxy.failover = None
        proxy.is_streamed = True
        async with proxy.serve(is_h2=True), asyncio.timeout(60):
            greedy = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
            other = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
            try:
                await asyncio.gather(greedy.limit(), other.limit())
                greedy.get_many("/", many)
                stream = other.get("/", {})
                await other.until(lambda: stream in other.ended)
                assert proxy.hooks.count("requestheaders") < many
                await greedy.until(lambda: len(greedy.ended) == many)
                assert set(greedy.status.values()) == {200}
            finally:
                await asyncio.gather(greedy.close(), other.close())
