"""Messages are mitmproxy's, made and read in less time."""

from __future__ import annotations

import time

import pytest
from mitmproxy import http
from mitmproxy.net.http import http1
from mitmproxy.test import tflow
from mitmproxy.utils import typecheck

from addons.proxy.http.messages import (
    HeadersReadOnce,
    refuse,
    request_of_fields,
    request_of_lines,
    response_of_server,
)
from kube.errors import bad_request

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
