"""Bounds of request heads, refusals of malformed heads, and buffered HTTP/2 bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.server.limits.request_head import (
    MAX_FIELDS,
    MAX_HEADERS,
    MAX_TARGET,
    fault_of,
    fields_to_send,
    is_upgrade,
)
from kube.errors import StatusError
from kube.http.transport.connection_pool import Connection

type Fields = Sequence[tuple[bytes, bytes]]


def fault(
    method: bytes = b"GET", path: bytes = b"/api", fields: Fields = (), authority: bytes = b"hub"
) -> StatusError | None:
    return fault_of(method, path, authority, fields)


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
def test_ordinary_request_heads_are_accepted(method: bytes, path: bytes, fields: Fields) -> None:
    assert fault(method, path, fields) is None


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (414, fault(path=b"/" + b"x" * MAX_TARGET)),
        (431, fault(fields=[(b"x", b"y" * MAX_HEADERS)])),
        (431, fault(fields=[(b"x", b"")] * (MAX_FIELDS + 1))),
        (431, fault(fields=[(b"name", b"value")] * (MAX_HEADERS // 8))),
        (400, fault(method=b"GET /evil")),
        (400, fault(method=b"")),
        (400, fault(method=b"G\x00T")),
        (400, fault(path=b"/a b")),
        (400, fault(path=b"/a\x00")),
        (400, fault(path=b"/\xff")),
        (400, fault(authority=b"hub\r\nx: y")),
        (400, fault(fields=[(b"", b"y")])),
        # The encoded data would be relayed as the body: a server decodes or refuses it.
        (501, fault(fields=[(b"Transfer-Encoding", b"gzip, chunked")])),
        (501, fault(fields=[(b"transfer-encoding", b"deflate,chunked")])),
        (400, fault(fields=[(b"a b", b"y")])),
        (400, fault(fields=[(b"x", b"a\rb")])),
        (400, fault(fields=[(b"x", b"a\nb")])),
        (400, fault(fields=[(b"x", b"a\x00b")])),
    ],
)
def test_a_malformed_request_head_is_400(code: int, found: StatusError | None) -> None:
    assert found is not None
    assert (found.code, found.reason) == (code, "BadRequest")


@dataclass(frozen=True)
class FakeServerConnection:
    scheme: str = "https"
    host: str = "a"
    port: int = 6443

    def available(self) -> None:
        """Return nothing: there is no connection."""

    async def opened(self) -> Connection:
        raise AssertionError("nobody asks for one")


LENGTH = (b"content-length", b"5")


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ([(b"Host", b"hub"), (b"X-A", b"1")], [(b"x-a", b"1")]),
        ([(b"Connection", b"Host, X-B"), (b"x-b", b"1"), (b"X-C", b"2")], [(b"x-c", b"2")]),
        ([(b"Connection", b"close"), (b"connection", b"x-b"), (b"X-B", b"1")], []),
        ([(b"Keep-Alive", b"1"), (b"TE", b"gzip"), (b"Proxy-Connection", b"x")], []),
        (
            [(b"Connection", b"upgrade, x-b"), (b"Upgrade", b"SPDY/3.1"), (b"X-B", b"1")],
            [(b"connection", b"Upgrade"), (b"upgrade", b"SPDY/3.1")],
        ),
        ([(b"Upgrade", b"h2c")], []),
        (
            [(b"Connection", b"Content-Length, Authorization"), LENGTH, (b"Authorization", b"t")],
            [LENGTH, (b"authorization", b"t")],
        ),
        ([(b"Transfer-Encoding", b"chunked")], []),
        ([(b"cookie", b"a=1"), (b"x", b"y"), (b"Cookie", b"b=2")], [(b"x", b"y"), (b"cookie", b"a=1; b=2")]),
    ],
)
def test_connection_specific_headers_are_not_forwarded(fields: Fields, sent: Fields) -> None:
    head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a:6443"), (b":path", b"/api")]
    assert fields_to_send(b"GET", b"/api", fields, FakeServerConnection(), None) == [*head, *sent]
    assert is_upgrade(fields) is ((b"connection", b"Upgrade") in sent)


@pytest.mark.parametrize(
    ("method", "length", "sent"),
    [
        (b"GET", 0, []),
        (b"POST", 0, [(b"content-length", b"0")]),
        (b"DELETE", 7, [(b"content-length", b"7")]),
        (b"POST", None, [LENGTH]),
    ],
)
def test_a_buffered_body_has_its_length_as_content_length(
    method: bytes, length: int | None, sent: Fields
) -> None:
    assert fields_to_send(method, b"/api", [LENGTH], FakeServerConnection(), length)[4:] == sent


def test_an_ipv6_host_is_written_in_brackets() -> None:
    assert (b":authority", b"[fd00::5]:6443") in fields_to_send(
        b"GET", b"/api", [], FakeServerConnection(host="fd00::5"), None
    )


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20))
def test_accepted_header_fields_are_single_lines(
    method: bytes, path: bytes, name: bytes, value: bytes
) -> None:
    if fault(method, path, [(name, value)]) is None:
        assert not {0, 10, 13} & set(method + path + name + value)
        assert not {0x20, 0x09, 0x3A} & set(method + name)
        assert b" " not in path
