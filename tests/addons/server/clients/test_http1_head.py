"""Request heads that the hub parses without h11: h11 gives the same result for each."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from addons.server.clients.http1_head import Http1Head, read_without_body

GET = b"GET /api/v1/nodes/a?b=c HTTP/1.1\r\nHost: hub\r\nAccept:  a, b \t\r\nX-Empty:\r\n\r\n"
PIECES = (
    *(
        b"GET",
        b"POST",
        b"CONNECT",
        b"PRI",
        b" ",
        b"  ",
        b"\t",
        b"/",
        b"*",
        b"/a?b",
        b"http://a/b",
        b"HTTP/1.1",
    ),
    *(b"HTTP/1.0", b"HTTP/2.0", b"\r\n", b"\n", b"\r", b"\v", b"\f", b"\0", b"\x1c", b"\x7f", b"\xff", b":"),
    *(b"Host", b"host: a", b"Host: a", b"HOST:a \t", b"Content-Length: 1", b"transfer-encoding: chunked"),
    *(b"Upgrade: x", b"Connection: close", b"Expect: 100-continue", b"X", b"X: ", b"X:", b": a", b"X : a"),
)
LINES = st.lists(st.sampled_from(PIECES), max_size=4).map(b"".join)
HEADS = st.builds(
    lambda line, lines, end: b"\r\n".join([line, *lines]) + end,
    st.sampled_from((b"GET / HTTP/1.1", b"POST /a HTTP/1.1")) | LINES,
    st.lists(st.sampled_from((b"Host: a", b"Accept: b", b"X-Y: \xff c")) | LINES, max_size=5),
    st.sampled_from((b"\r\n\r\n", b"\r\n\n", b"\n\n", b"\r\n")),
)


def by_h11(head: bytes) -> Http1Head:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(head)
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    assert isinstance(connection.next_event(), h11.EndOfMessage), "a body follows"
    assert connection.trailing_data == (b"", False)
    fields = tuple(event.headers.raw_items())
    names = frozenset(name for name, _ in event.headers)
    return Http1Head(event.method, event.target, b"HTTP/" + event.http_version, fields, names)


@given(HEADS)
@example(GET)
@example(b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x85b\xa0\r\n\r\n")
def test_each_head_is_parsed_like_by_h11(head: bytes) -> None:
    read = read_without_body(head)
    if read is not None:
        assert read == by_h11(head)


def test_a_components_request_head_is_parsed_without_h11() -> None:
    fields = ((b"Host", b"hub"), (b"Accept", b"a, b"), (b"X-Empty", b""))
    names = frozenset({b"host", b"accept", b"x-empty"})
    assert read_without_body(GET) == (b"GET", b"/api/v1/nodes/a?b=c", b"HTTP/1.1", fields, names)


@pytest.mark.parametrize(
    "line", [b"Content-Length: 0", b"transfer-Encoding: chunked", b"host: b", b"X : a", b"X", b" a", b"X: \0"]
)
def test_a_head_with_a_body_or_a_fault_is_left_to_h11(line: bytes) -> None:
    assert read_without_body(GET[:-2] + line + b"\r\n\r\n") is None
