"""Heads and bodies as the hub reads them in mitmproxy's messages: fields parsed once, chunks within bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons, tflow
from mitmproxy.utils import typecheck

from addons.server.limits.request_bodies import CHUNKS_PER_STEP, MAX_CHUNK_LINE
from addons.server.messages import (
    IndexedHeaders,
    error_body,
    error_response,
    refuse,
    request_of_fields,
    request_of_line,
    response_of_server,
)
from kube.errors import bad_request
from tests.addons.support.proxied import ANSWER, FROM_NODE, Proxy, Raw

FIELDS = ((b"Host", b"hub"), (b"accept", b"a"), (b"Accept", b"\xff"), (b"empty", b""))
OF_HTTP1 = ((b"Host", b"hub"), (b"Accept", b"a"))
HEAD = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/api"),
    (b":authority", b"hub:1"),
    (b"a", b"b"),
]


@pytest.mark.parametrize("name", ["host", b"HOST", "Accept", "empty", "absent", "\udcff"])
def test_header_fields_are_read_like_mitmproxy_reads_them(name: str | bytes) -> None:
    own, ours = http.Headers(FIELDS), IndexedHeaders(FIELDS)
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


def test_changed_headers_are_parsed_again() -> None:
    headers = IndexedHeaders(FIELDS)
    assert headers["Host"] == "hub"
    headers["host"] = "other"
    headers.add("accept", "more")
    del headers["empty"]
    assert (headers["Host"], headers["Accept"], "empty" in headers) == ("other", "a, \udcff, more", False)
    headers.get_all("host").clear()
    assert headers["Host"] == "other"
    headers.fields = ()
    assert "host" not in headers


def test_mitmproxys_own_header_lookup_calls_a_function_for_each_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If this fails, the hub's own header lookup is no longer needed."""
    asked: list[bytes] = []

    def lower(key: bytes) -> bytes:
        asked.append(key)
        return key.lower()

    monkeypatch.setattr(http.Headers, "_kconv", staticmethod(lower))
    for _ in range(2):
        http.Headers(FIELDS).get("host")
    assert len(asked) == 2 * (1 + len(FIELDS))
    assert IndexedHeaders(FIELDS).get("host") == "hub"
    assert len(asked) == 2 * (1 + len(FIELDS))


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the fields whose types mitmproxy checks."""
    found: list[str] = []
    monkeypatch.setattr(typecheck, "check_option_type", lambda name, *_: found.append(name))
    return found


type Fields = list[tuple[bytes, bytes]]

LENGTH = (b"content-length", b"3")
REQUEST = request_of_line(b"GET", b"/api?a=b", b"HTTP/1.1", OF_HTTP1)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/api?a=b", ("127.0.0.1", 1, "http", "", "/api?a=b")),
        (b"*", ("127.0.0.1", 1, "http", "", "*")),
        (b"http://hub/api", ("hub", 80, "http", "hub", "/api")),
        (b"https://hub:8/api", ("hub", 8, "https", "hub:8", "/api")),
    ],
)
def test_a_request_line_is_parsed(target: bytes, shown: tuple[object, ...]) -> None:
    made = request_of_line(b"GET", target, b"HTTP/1.1", OF_HTTP1)
    assert (made.host, made.port, made.scheme, made.authority, made.path) == shown
    assert (made.http_version, made.method, made.headers["host"]) == ("HTTP/1.1", "GET", "hub")


@pytest.mark.parametrize("target", [b"api", b"gopher://hub/", b"http://a@hub/", b"http:///x"])
def test_a_malformed_target_is_a_value_error(target: bytes) -> None:
    with pytest.raises(ValueError, match="neither a path nor an absolute URL"):
        request_of_line(b"GET", target, b"HTTP/1.1", OF_HTTP1)


def test_http2_pseudo_header_fields_give_the_request_line() -> None:
    request = request_of_fields(HEAD)
    assert (request.authority, request.path, request.http_version) == ("hub:1", "/api", "HTTP/2.0")
    assert (request.method, [*request.headers.items()]) == ("GET", [("a", "b")])


@pytest.mark.parametrize(
    ("request_", "status", "fields", "sent"),
    [
        (request_of_fields(HEAD), 200, [LENGTH], [LENGTH]),
        (request_of_fields(HEAD), 200, [], []),
        (request_of_fields(HEAD), 200, [(b"connection", b"close"), (b"a", b"b")], [(b"a", b"b")]),
        (REQUEST, 200, [LENGTH], [LENGTH]),
        (REQUEST, 200, [(b"transfer-encoding", b"chunked")], []),
        (REQUEST, 204, [], []),
        (REQUEST, 101, *2 * ([(b"connection", b"Upgrade"), (b"upgrade", b"SPDY/3.1")],)),
    ],
)
def test_a_servers_head_is_translated_for_the_client(
    request_: http.Request, status: int, fields: Fields, sent: Fields
) -> None:
    made = response_of_server(status, fields, request_)
    assert (made.status_code, list(made.headers.fields)) == (status, sent)
    assert made.is_http2 is request_.is_http2


def test_mitmproxy_does_not_check_the_fields_of_a_head_made_by_the_hub(checked: list[str]) -> None:
    """mitmproxy's check of a field that is None leaves a reference cycle with all calling frames."""
    flow = tflow.tflow()
    checked.clear()
    refuse(flow, bad_request("nobody"))
    request_of_line(b"GET", b"/", b"HTTP/1.1", OF_HTTP1)
    response_of_server(200, [(b"a", b"b")], request_of_fields(HEAD))
    assert not checked


IN_CHUNKS = b"Host: hub\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST http://hub/ HTTP/1.1\r\n" + IN_CHUNKS


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()):
        made = Proxy(Raw(ANSWER), Raw(FROM_NODE))
        made.failover = None
        yield made


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("begin", [b"5;a=", b"0", b"1\r\nx\r\n0\r\nX: "])
async def test_a_request_line_beyond_the_bound_is_refused(
    proxy: Proxy[Raw], begin: bytes, is_streamed: bool
) -> None:
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
        b"1" + b"0" * 30 + b"\r\n",
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


async def test_a_servers_line_beyond_the_bound_is_502(proxy: Proxy[Raw]) -> None:
    proxy.server.says = b"HTTP/1.1 200 OK\r\n" + IN_CHUNKS + b"5;" + b"x" * 2 * MAX_CHUNK_LINE
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502")


async def test_a_body_of_many_small_chunks_is_relayed_over_several_iterations(proxy: Proxy[Raw]) -> None:
    """One packet has more chunks than are handled in one iteration of the loop."""
    count = 5 * CHUNKS_PER_STEP + 3
    close = POST.replace(b"Host", b"Connection: close\r\nHost")
    flows: list[http.HTTPFlow] = []
    proxy.decide = flows.append
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(close + b"1\r\nx\r\n" * count + b"0\r\n\r\n")
        assert (await reader.read()).endswith(b"server")
        writer.close()
    assert flows[0].request.raw_content == b"x" * count


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (400, "BadRequest"),
        (413, "RequestEntityTooLarge"),
        (502, "ServiceUnavailable"),
        (504, "ServiceUnavailable"),
    ],
)
def test_errors_that_bypass_addons_are_statuses(code: int, reason: str) -> None:
    head, _, body = error_response(code, "why\nit <b>failed</b>").partition(b"\r\n\r\n")
    said = json.loads(body)
    assert (said["kind"], said["status"], said["code"], said["reason"]) == ("Status", "Failure", code, reason)
    assert head.startswith(b"HTTP/1.1 %d " % code)
    lines = head.split(b"\r\n")
    assert b"Content-Type: application/json" in lines
    assert b"Content-Length: %d" % len(body) in lines
    assert json.loads(error_body(code, "why"))["code"] == code


def test_a_status_code_without_a_reason_phrase_is_sent() -> None:
    assert error_response(599).startswith(b"HTTP/1.1 599 Error\r\n")


def test_a_long_reason_phrase_is_truncated_to_one_line() -> None:
    said = json.loads(error_body(502, "a\nb " * 1000))
    assert "\n" not in said["message"]
    assert len(said["message"]) < 300
