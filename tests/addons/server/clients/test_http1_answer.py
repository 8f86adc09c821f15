"""The framing of HTTP/1.1 responses for each client, and responses that are never sent."""

from __future__ import annotations

import h11
import pytest

from addons.server.clients.http1_answer import AnswerFraming
from addons.server.request import AnswerFields

LENGTH = [(b"Content-Length", b"4")]
CHUNKED = [(b"transfer-encoding", b"chunked")]
CLOSE = [(b"connection", b"close")]


def encoded_response(
    fields: AnswerFields = (),
    pieces: tuple[bytes, ...] = (),
    *,
    status: int = 200,
    size: int | None = None,
    **asked: bool,
) -> tuple[AnswerFraming, bytes]:
    framing = AnswerFraming(**{"is_head": False, "is_http10": False, "is_last": False, **asked})
    return framing, b"".join(
        [framing.head(status, fields, size), *(map(framing.piece, pieces)), framing.end()]
    )


def read(method: str, raw: bytes) -> tuple[AnswerFields, bytes]:
    """Return the fields and the body that h11 parses as a client."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "hub")]))
    client.send(h11.EndOfMessage())
    client.receive_data(raw)
    head, body = client.next_event(), b""
    assert isinstance(head, h11.Response)
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    return [*head.headers], body


@pytest.mark.parametrize(
    ("framing", "is_last", "body", "fields"),
    [
        (encoded_response(LENGTH, (b"ab", b"cd")), False, b"abcd", [(b"content-length", b"4")]),
        (encoded_response(LENGTH * 2, (b"abcd",)), False, b"abcd", [(b"content-length", b"4")]),
        (encoded_response((), (b"abcd",), size=4), False, b"abcd", [(b"content-length", b"4")]),
        (encoded_response((), (b"ab", b"", b"cd")), False, b"abcd", CHUNKED),
        (encoded_response(CHUNKED, (b"abcd",)), False, b"abcd", CHUNKED),
        (encoded_response((), status=204), False, b"", []),
        (encoded_response([(b"Content-Length", b"9")], status=304), False, b"", [(b"content-length", b"9")]),
        (encoded_response((), (b"abcd",), is_last=True), True, b"abcd", CHUNKED + CLOSE),
        (encoded_response([(b"Connection", b"Close")], (b"abcd",)), True, b"abcd", CHUNKED + CLOSE),
        (encoded_response([(b"Connection", b"keep-alive")], is_last=True), True, b"", CHUNKED + CLOSE),
    ],
)
def test_a_client_reads_the_body_to_its_end(
    framing: tuple[AnswerFraming, bytes], is_last: bool, body: bytes, fields: AnswerFields
) -> None:
    answer, raw = framing
    assert read("GET", raw) == (fields, body)
    assert (answer.is_last, answer.has_ended) == (is_last, True)


@pytest.mark.parametrize(
    ("framing", "fields"),
    [
        (encoded_response(LENGTH, is_head=True), [(b"content-length", b"4")]),
        (encoded_response((), is_head=True), CHUNKED),
    ],
)
def test_a_response_to_head_has_the_fields_of_the_response_to_get(
    framing: tuple[AnswerFraming, bytes], fields: AnswerFields
) -> None:
    answer, raw = framing
    assert read("HEAD", raw) == (fields, b"")
    assert not answer.is_last


def test_a_body_without_a_length_closes_the_connection_of_an_http_1_0_client() -> None:
    answer, raw = encoded_response((), (b"ab", b"cd"), is_http10=True)
    assert raw == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcd"
    assert answer.is_last


@pytest.mark.parametrize(
    ("fields", "status", "pieces"),
    [
        ([(b"a", b"b\r\nc: d")], 200, ()),
        ([(b"a b", b"c")], 200, ()),
        ([(b"Content-Length", b"4"), (b"Content-Length", b"5")], 200, ()),
        ([(b"Content-Length", b"-4")], 200, ()),
        ((), 42, ()),
        (LENGTH, 200, (b"abc",)),
        (LENGTH, 200, (b"abcde",)),
        ((), 204, (b"a",)),
    ],
)
def test_a_response_with_ambiguous_framing_is_refused(
    fields: AnswerFields, status: int, pieces: tuple[bytes, ...]
) -> None:
    with pytest.raises(ValueError, match=r"response"):
        encoded_response(fields, pieces, status=status)
