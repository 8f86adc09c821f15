"""Heads and bodies as the hub reads them beside mitmproxy: fields once, chunks within bounds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator, Iterator

import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.net.http import http1
from mitmproxy.proxy.commands import Command, SendData
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestData, RequestEndOfMessage
from mitmproxy.test import taddons, tflow
from mitmproxy.utils import typecheck

from addons.proxy.http.client_connections import joined
from addons.proxy.http.http_layer import HubHttpLayer
from addons.proxy.http.messages import (
    HeadersReadOnce,
    refuse,
    request_of_fields,
    request_of_lines,
    response_of_server,
)
from addons.requests.exchange.request_bodies import (
    CHUNKS_AT_ONCE,
    LARGEST_CHUNK,
    MAX_CHUNK_LINE,
)
from kube.errors import bad_request
from tests.addons.support.proxied import ANSWER, FROM_NODE, Proxy, Raw

FIELDS = ((b"Host", b"hub"), (b"accept", b"a"), (b"Accept", b"\xff"), (b"empty", b""))
LINES = [b"GET /api?a=b HTTP/1.1", b"Host: hub", b"Accept: a"]
HEAD = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/api"),
    (b":authority", b"hub:1"),
    (b"a", b"b"),
]


@pytest.mark.parametrize("name", ["host", b"HOST", "Accept", "empty", "absent", "\udcff"])
def test_fields_read_as_mitmproxy_reads_them(name: str | bytes) -> None:
    own, ours = http.Headers(FIELDS), HeadersReadOnce(FIELDS)
    assert ours.get_all(name) == own.get_all(name)
    assert ours.get(name) == own.get(name)
    assert ours.get(name, "default") == own.get(name, "default")
    assert (name in ours) is (name in own)
    assert ours == own
    if name in own:
        assert ours[name] == own[name]
    else:
        with pytest.raises(KeyError):
            ours[name]


def test_what_is_changed_is_read_anew() -> None:
    headers = HeadersReadOnce(FIELDS)
    assert headers["Host"] == "hub"
    headers["host"] = "other"
    headers.add("accept", "more")
    del headers["empty"]
    assert (headers["Host"], headers["Accept"], "empty" in headers) == ("other", "a, \udcff, more", False)
    headers.get_all("host").clear()
    assert headers["Host"] == "other"
    headers.fields = ()
    assert "host" not in headers


def test_mitmproxy_itself_calls_a_function_for_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """When this fails, header reads need not be cheaper any longer."""
    asked: list[bytes] = []

    def lower(key: bytes) -> bytes:
        asked.append(key)
        return key.lower()

    monkeypatch.setattr(http.Headers, "_kconv", staticmethod(lower))
    for _ in range(2):
        http.Headers(FIELDS).get("host")
    assert len(asked) == 2 * (1 + len(FIELDS))
    assert HeadersReadOnce(FIELDS).get("host") == "hub"
    assert len(asked) == 2 * (1 + len(FIELDS))


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fields whose types mitmproxy compares."""
    found: list[str] = []
    monkeypatch.setattr(typecheck, "check_option_type", lambda name, *_: found.append(name))
    return found


def test_heads_are_read_as_mitmproxy_reads_them(checked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.0)
    ours, own = request_of_lines(LINES), http1.read_request_head(LINES)
    assert checked, "when this fails, mitmproxy checks no types any longer"
    assert ours.data == own.data
    assert type(ours) is type(own)
    assert ours.get_state() == own.get_state()
    assert isinstance(ours.headers, HeadersReadOnce)
    request = request_of_fields(HEAD)
    assert (request.host, request.port, request.path, request.http_version) == ("hub", 1, "/api", "HTTP/2.0")


type Fields = list[tuple[bytes, bytes]]

CHUNKED = (b"Transfer-Encoding", b"chunked")
LENGTH = (b"content-length", b"3")
LINES_1_0 = [LINES[0].replace(b"HTTP/1.1", b"HTTP/1.0"), *LINES[1:]]


@pytest.mark.parametrize(
    ("request_", "status", "is_framed", "fields", "sent"),
    [
        (request_of_fields(HEAD), 200, True, [LENGTH], [LENGTH]),
        (request_of_fields(HEAD), 200, True, [], []),
        (request_of_fields(HEAD), 200, True, [(b"connection", b"close"), (b"a", b"b")], [(b"a", b"b")]),
        (request_of_lines(LINES), 200, True, [LENGTH], [LENGTH]),
        (request_of_lines(LINES), 200, True, [(b"transfer-encoding", b"chunked")], [CHUNKED]),
        (request_of_lines(LINES), 200, True, [], [CHUNKED]),
        (request_of_lines(LINES), 200, False, [], []),
        (request_of_lines(LINES), 204, True, [], []),
        (request_of_lines(LINES_1_0), 200, True, [], []),
        (
            request_of_lines(LINES),
            101,
            True,
            *2 * ([(b"connection", b"Upgrade"), (b"upgrade", b"SPDY/3.1")],),
        ),
    ],
)
def test_a_servers_head_as_the_client_has_it(
    request_: http.Request, status: int, is_framed: bool, fields: Fields, sent: Fields
) -> None:
    made = response_of_server(status, fields, request_, is_framed=is_framed)
    assert (made.status_code, list(made.headers.fields)) == (status, sent)
    assert made.is_http2 is request_.is_http2


def test_a_head_that_is_made_here_is_not_checked(checked: list[str]) -> None:
    """mitmproxy's check of a field that is None leaves a cycle, and in it all that called."""
    flow = tflow.tflow()
    checked.clear()
    refuse(flow, bad_request("nobody"))
    request_of_lines(LINES)
    response_of_server(200, [(b"a", b"b")], request_of_fields(HEAD), is_framed=True)
    assert not checked


@pytest.mark.parametrize("lines", [[b"GET"], [b"GET / HTTP/x"], [b"GET / HTTP/1.1", b"no colon"]])
def test_a_malformed_head_is_a_value_error(lines: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"Bad HTTP request line|Invalid header line"):
        request_of_lines(lines)


IN_CHUNKS = b"Host: hub\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST http://hub/ HTTP/1.1\r\n" + IN_CHUNKS


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()) as context:
        made = Proxy(context.options, Raw(ANSWER), Raw(FROM_NODE), HubHttpLayer)
        made.failover = None
        yield made


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("begin", [b"5;a=", b"0", b"1\r\nx\r\n0\r\nX: "])
async def test_a_line_without_end_is_refused(proxy: Proxy[Raw], begin: bytes, is_streamed: bool) -> None:
    proxy.is_request_streamed = is_streamed
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(POST + begin + b"0" * (MAX_CHUNK_LINE + 1))
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "begin",
    [
        *(b"zz\r\n", b"-1\r\n", b" 5\r\n", b"0x5\r\n", b"5 5\r\n", b"\r\n", b"\xef\xbc\x95\r\n"),
        *(b"5\r\nhello!!", b"5\r\nhello\r\nzz\r\n"),
        *(b"%x\r\nxx" % (LARGEST_CHUNK + 10), b"1" + b"0" * 16 + b"\r\nx", b"1" + b"0" * 30 + b"\r\n"),
    ],
)
async def test_a_malformed_chunk_is_refused_with_a_status(
    proxy: Proxy[Raw], begin: bytes, is_streamed: bool
) -> None:
    proxy.is_request_streamed = is_streamed
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(POST + begin)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "BadRequest"
    assert not proxy.server.got or is_streamed


async def test_mitmproxys_own_connection_hangs_up_at_a_malformed_chunk(proxy: Proxy[Raw]) -> None:
    proxy.layer_type = HttpLayer
    async with proxy.serve(), asyncio.timeout(20):
        assert not await proxy.ask(POST + b"zz\r\n")


async def test_a_servers_line_without_end_is_a_502(proxy: Proxy[Raw]) -> None:
    proxy.server.says = b"HTTP/1.1 200 OK\r\n" + IN_CHUNKS + b"5;" + b"x" * 2 * MAX_CHUNK_LINE
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502")


async def test_a_body_in_very_small_chunks_arrives_whole_and_in_turns(proxy: Proxy[Raw]) -> None:
    """More than are handled in one go come in one packet."""
    count = 5 * CHUNKS_AT_ONCE + 3
    close = POST.replace(b"Host", b"Connection: close\r\nHost")
    flows: list[http.HTTPFlow] = []
    proxy.decide = flows.append
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(close + b"1\r\nx\r\n" * count + b"0\r\n\r\n")
        assert (await reader.read()).endswith(b"server")
        writer.close()
    assert flows[0].request.raw_content == b"x" * count


def pieces_of(count: int) -> Generator[Command]:
    for _ in range(count):
        yield ReceiveHttp(RequestData(1, b"x"))


@pytest.mark.parametrize(("count", "size"), [(3, 3), (CHUNKS_AT_ONCE + 5, CHUNKS_AT_ONCE)])
def test_no_more_pieces_are_taken_than_fit_in_one_go(count: int, size: int) -> None:
    made = joined(pieces_of(count))
    (event,) = [each.event for each in iter(lambda: next(made, None), None) if isinstance(each, ReceiveHttp)]
    assert event == RequestData(1, b"x" * size)


def test_pieces_that_follow_each_other_are_one() -> None:
    def data(stream: int, text: bytes) -> Command:
        return ReceiveHttp(RequestData(stream, text))

    end = ReceiveHttp(RequestEndOfMessage(1))
    sent = SendData(tflow.tclient_conn(), b"")
    made = list(joined(each for each in (data(1, b"a"), data(1, b"b"), end, sent, data(3, b"c"))))
    assert [type(each) for each in made] == [ReceiveHttp, ReceiveHttp, SendData, ReceiveHttp]
    events = [each.event for each in made if isinstance(each, ReceiveHttp)]
    assert events == [RequestData(1, b"ab"), RequestEndOfMessage(1), RequestData(3, b"c")]
