"""Header fields of a request: passed unchanged, or refused."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hypothesis import example, given
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.http.transport.request_fields import HeaderFields, request_fields, with_prefix


@given(st.binary(max_size=12))
@example(b"\xc2\xa0")
@example(b"\xc2\x85")
@example(b"\x1f")
@example(b" Bearer token")
def test_a_header_value_is_sent_byte_for_byte_or_refused(value: bytes) -> None:
    """A Unicode blank was once stripped: a caller without a token got the hub's identity."""

    def seen_by_a_server(fields: HeaderFields) -> dict[bytes, bytes]:
        """Return the header fields that h2 decodes on the other side."""
        client = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        server = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        client.initiate_connection()
        client.send_headers(1, fields, end_stream=True)
        (request,) = [
            each for each in server.receive_data(client.data_to_send()) if isinstance(each, RequestReceived)
        ]
        return dict(request.headers)

    text = value.decode(errors="surrogateescape")
    headers = [("Authorization", text)]
    try:
        fields = request_fields("GET", "http", "a:1", "/x", headers, None)
    except StatusError:
        assert value != value.strip() or any(byte < 0x20 or byte == 0x7F for byte in value)
        return
    assert seen_by_a_server(fields)[b"authorization"] == value


@pytest.mark.parametrize("value", ["a\r\nb", "a\0", "\ud83d", " a", "a\t", "\x7f"])
def test_a_value_that_cannot_be_sent_is_refused(value: str) -> None:
    with pytest.raises(StatusError, match="Authorization cannot be sent") as raised:
        request_fields("GET", "http", "a:1", "/", [("Authorization", value)], None)
    assert raised.value.code == 400


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET /evil", "/", "a"),
        ("GET", "/a b", "a"),
        ("GET", "/\n", "a"),
        ("GET", "/", "\u212aelvin"),
        ("GET", "/", "a:"),
    ],
)
def test_a_request_line_or_name_that_cannot_be_sent_is_refused(method: str, path: str, name: str) -> None:
    with pytest.raises(StatusError, match="cannot be sent"):
        request_fields(method, "http", "a:1", path, [(name, "x")], None)


def test_request_paths_start_with_the_servers_path_prefix() -> None:
    fields = request_fields("GET", "https", "h", "/api/v1/pods?limit=1", [("Accept", "x")], None)
    assert with_prefix(b"", fields) is fields
    moved = with_prefix(b"/k8s/c-1", fields)
    assert moved[3] == (b":path", b"/k8s/c-1/api/v1/pods?limit=1")
    assert [*moved[:3], *moved[4:]] == [*fields[:3], *fields[4:]]
