"""Which heads of requests are refused, and by which code."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http

from addons.proxy.http.request_head import MAX_FIELDS, MAX_HEADERS, MAX_TARGET, as_http1, fault_of

type Fields = Sequence[tuple[bytes, bytes]]


def request(
    method: bytes = b"GET", path: bytes = b"/api", fields: Fields = (), authority: bytes = b"hub"
) -> http.Request:
    return http.Request(
        "hub",
        80,
        method,
        b"http",
        authority,
        path,
        b"HTTP/2.0",
        http.Headers(tuple(fields)),
        None,
        None,
        0,
        None,
    )


@pytest.mark.parametrize(
    ("method", "path", "fields"),
    [
        (b"GET", b"/api/v1/pods?labelSelector=a%3Db", [(b"accept", b"application/json")]),
        (b"PATCH", b"/" + b"x" * (MAX_TARGET - 1), []),
        (b"DELETECOLLECTION", b"/", [(b"x", b"y" * (MAX_HEADERS - 1))]),
        (b"GET", b"/", [(b"impersonate-group", b"a")] * MAX_FIELDS),
        (b"GET", b"*", [(b"x-text", "Größe".encode()), (b"empty", b"")]),
    ],
)
def test_what_clients_send_is_no_fault(method: bytes, path: bytes, fields: Fields) -> None:
    assert fault_of(request(method, path, fields)) is None


@pytest.mark.parametrize(
    ("code", "made"),
    [
        (414, request(path=b"/" + b"x" * MAX_TARGET)),
        (431, request(fields=[(b"x", b"y" * MAX_HEADERS)])),
        (431, request(fields=[(b"x", b"")] * (MAX_FIELDS + 1))),
        (431, request(fields=[(b"name", b"value")] * (MAX_HEADERS // 8))),
        (400, request(method=b"GET /evil")),
        (400, request(method=b"")),
        (400, request(method=b"G\x00T")),
        (400, request(path=b"/a b")),
        (400, request(path=b"/a\x00")),
        (400, request(path=b"/\xff")),
        (400, request(authority=b"hub\r\nx: y")),
        (400, request(fields=[(b"", b"y")])),
        (400, request(fields=[(b"a b", b"y")])),
        (400, request(fields=[(b"x", b"a\rb")])),
        (400, request(fields=[(b"x", b"a\nb")])),
        (400, request(fields=[(b"x", b"a\x00b")])),
    ],
)
def test_what_is_refused(code: int, made: http.Request) -> None:
    fault = fault_of(made)
    assert fault is not None
    assert fault.code == code
    assert fault.reason == "BadRequest"


HOST = (b"Host", b"hub")


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ([HOST, (b"Accept", b"*/*")], [HOST, (b"Accept", b"*/*")]),
        ([HOST, (b"Connection", b"Host, X-B"), (b"x-b", b"1"), (b"X-C", b"2")], [HOST, (b"X-C", b"2")]),
        ([HOST, (b"Connection", b"close"), (b"connection", b"x-b"), (b"X-B", b"1")], [HOST]),
        ([HOST, (b"Keep-Alive", b"1"), (b"TE", b"gzip"), (b"Proxy-Connection", b"x")], [HOST]),
        (
            [HOST, (b"Connection", b"upgrade, x-b"), (b"Upgrade", b"SPDY/3.1"), (b"X-B", b"1")],
            [HOST, (b"Upgrade", b"SPDY/3.1"), (b"Connection", b"Upgrade")],
        ),
        (
            [
                HOST,
                (b"Connection", b"Content-Length, Authorization"),
                (b"Content-Length", b"0"),
                (b"Authorization", b"t"),
            ],
            [HOST, (b"Content-Length", b"0"), (b"Authorization", b"t")],
        ),
    ],
)
def test_what_was_for_one_connection_goes_no_further(fields: Fields, sent: Fields) -> None:
    made = request(fields=fields)
    assert list(as_http1(made, has_body=False).headers.fields) == list(sent)
    assert list(made.headers.fields) == list(fields), (
        "mitmproxy looks there whether the client's connection ends"
    )


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20))
def test_what_passes_is_one_line_each(method: bytes, path: bytes, name: bytes, value: bytes) -> None:
    if fault_of(request(method, path, [(name, value)])) is None:
        assert not {0, 10, 13} & set(method + path + name + value)
        assert not {0x20, 0x09, 0x3A} & set(method + name)
        assert b" " not in path
