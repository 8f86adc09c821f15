"""A frame that is too large is noticed when it begins, and a head before it ends."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import DenialOfServiceError, FrameTooLargeError
from hpack import Decoder
from hyperframe.frame import ContinuationFrame, HeadersFrame, PingFrame

from kube.http.transport.http2_frames import LONGEST_CODED, HeadEncoder, check_incoming
from tests.support.cpu_time import own_seconds

LIMIT = 1000
HEAD = 3000
"""Bytes of all frames of one head."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""With empty settings."""


def head(length: int) -> bytes:
    return length.to_bytes(3) + bytes((0, 0, 0, 0, 0, 1))


@pytest.mark.parametrize(
    ("sent", "fits"),
    [
        (b"", True),
        (b"\xff", True),
        (b"\xff\xff", True),
        (head(LIMIT), True),
        (head(LIMIT)[:3], True),
        (PingFrame(0, b"x" * 8).serialize() + head(LIMIT) + b"x" * (LIMIT - 1), True),
        (head(LIMIT + 1)[:3], False),
        (head(2**24 - 1), False),
        (PingFrame(0, b"x" * 8).serialize() + head(LIMIT + 1) + b"x", False),
    ],
)
def test_what_is_refused(sent: bytes, fits: bool) -> None:
    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    connection.receive_data(PREFACE + sent)
    if fits:
        check_incoming(connection, LIMIT, HEAD)
    else:
        with pytest.raises(FrameTooLargeError):
            check_incoming(connection, LIMIT, HEAD)


@pytest.mark.parametrize(("more", "fits"), [(0, True), (2, True), (3, False), (60, False)])
def test_a_head_is_refused_before_its_last_frame(more: int, fits: bool) -> None:
    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    frames = [HeadersFrame(1, b"x" * 900), *(ContinuationFrame(1, b"x" * 1000) for _ in range(more))]
    connection.receive_data(PREFACE + b"".join(each.serialize() for each in frames))
    if fits:
        check_incoming(connection, LIMIT, HEAD)
    else:
        with pytest.raises(DenialOfServiceError):
            check_incoming(connection, LIMIT, HEAD)


def test_a_preface_that_is_not_whole_is_no_frame() -> None:
    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    connection.receive_data(PREFACE[:10])
    check_incoming(connection, LIMIT, HEAD)


@pytest.mark.parametrize("length", [0, LONGEST_CODED, LONGEST_CODED + 1, 64 * 1024])
def test_a_head_arrives_as_it_was_whatever_its_length(length: int) -> None:
    fields = [(b":path", b"/"), (b"authorization", b"~" * length), (b"x", b"y")]
    encoder, decoder = HeadEncoder(), Decoder(max_header_list_size=2**20)
    for _ in range(2):
        assert [tuple(each) for each in decoder.decode(encoder.encode(iter(fields)), raw=True)] == fields


def test_a_long_value_costs_no_more_for_each_byte() -> None:
    """A token of 58 KB took half a second of the loop, each time that it was sent on."""
    fields = [(b"authorization", b"~" * 60_000)]
    assert own_seconds(lambda: HeadEncoder().encode(fields)) < 0.1
