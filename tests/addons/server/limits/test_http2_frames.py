"""A client's HTTP/2 frames: how many are handled in one iteration, size limits, and accepted settings."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Decoder
from hyperframe.frame import ContinuationFrame, DataFrame, Frame, HeadersFrame, PingFrame, SettingsFrame

from addons.server.limits.http2_frames import (
    HUFFMAN_LIMIT,
    MAX_FRAME,
    MAX_HEAD,
    MAX_TABLE,
    REQUESTS_PER_STEP,
    Frames,
    FrameTooLarge,
    HeadEncoder,
)
from tests.support.cpu_time import own_seconds

BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def pieces(*data: bytes) -> list[bytes]:
    """Return the output for each call with such a part of the data."""
    frames, found, came = Frames(), list[bytes](), bytearray()
    for each in data:
        came += each
        has_more = True
        while has_more:
            taken, has_more = frames.next_frames(came)
            if taken:
                found.append(taken)
    return found


def test_a_few_requests_are_passed_on_in_one_call() -> None:
    def heads(count: int) -> bytes:
        return b"".join(
            HeadersFrame(2 * number + 1, b"x", flags=["END_HEADERS"]).serialize() for number in range(count)
        )

    def _rest(count: int) -> list[bytes]:
        size = len(heads(count))
        return [heads(2 * count)[size:]]

    found = pieces(BEGIN + heads(2 * REQUESTS_PER_STEP + 1))
    assert found == [
        BEGIN + heads(REQUESTS_PER_STEP),
        *_rest(REQUESTS_PER_STEP),
        heads(2 * REQUESTS_PER_STEP + 1)[-10:],
    ]


@pytest.mark.parametrize("size", [1, 7, 10, 24, 100, 100_000])
@pytest.mark.parametrize(
    "frames",
    [
        [
            HeadersFrame(1, b"x" * 50, flags=["END_HEADERS"]),
            DataFrame(1, b"y" * 16_000),
            DataFrame(1, b"y" * 300),
        ],
        [PingFrame(0, b"x" * 8)] * 300,
        [
            each
            for number in range(1, 200, 2)
            for each in (HeadersFrame(number, b"x", flags=["END_HEADERS"]), DataFrame(number, b""))
        ],
    ],
    ids=["a body", "pings", "requests"],
)
def test_all_frames_are_passed_on_in_order(frames: list[Frame], size: int) -> None:
    sent = BEGIN + b"".join(each.serialize() for each in frames)
    assert b"".join(pieces(*(sent[at : at + size] for at in range(0, len(sent), size)))) == sent


def head(length: int) -> bytes:
    return length.to_bytes(3) + bytes((0, 0, 0, 0, 0, 1))


@pytest.mark.parametrize(
    ("sent", "fits"),
    [
        (b"", True),
        (b"\xff", True),
        (head(MAX_FRAME), True),
        (PingFrame(0, b"x" * 8).serialize() + head(MAX_FRAME) + b"x" * (MAX_FRAME - 1), True),
        (head(MAX_FRAME + 1), False),
        (head(2**24 - 1), False),
        (PingFrame(0, b"x" * 8).serialize() + head(MAX_FRAME + 1) + b"x", False),
    ],
)
def test_an_oversized_frame_is_refused_at_its_header(sent: bytes, fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(FrameTooLarge):
        pieces(BEGIN + sent)


@pytest.mark.parametrize(("more", "fits"), [(0, True), (MAX_HEAD // MAX_FRAME - 1, True), (100, False)])
def test_an_oversized_head_is_refused_before_its_last_frame(more: int, fits: bool) -> None:
    frames = [
        HeadersFrame(1, bytes(MAX_FRAME)),
        *(ContinuationFrame(1, bytes(MAX_FRAME)) for _ in range(more)),
    ]
    with nullcontext() if fits else pytest.raises(FrameTooLarge):
        pieces(BEGIN + b"".join(each.serialize() for each in frames))


def test_an_incomplete_preface_is_no_frame() -> None:
    assert pieces(BEGIN[:10]) == []


def test_unknown_http2_settings_are_dropped() -> None:
    """An unauthenticated client once sent 400 KB of them, which h2 stored in 56 MB for the life of the connection."""
    known = {SettingsFrame.INITIAL_WINDOW_SIZE: 7, SettingsFrame.MAX_CONCURRENT_STREAMS: 8}
    unknown = dict.fromkeys(range(100, 256), 1)
    connection = H2Connection(H2Configuration(client_side=False))
    connection.initiate_connection()
    for piece in pieces(BEGIN + SettingsFrame(0, known | unknown).serialize()):
        connection.receive_data(piece)
    assert (connection.remote_settings.initial_window_size, len(connection.remote_settings)) == (7, 6)


def test_a_settings_acknowledgement_is_passed_on() -> None:
    ack = SettingsFrame(0, flags=["ACK"]).serialize()
    assert b"".join(pieces(BEGIN + ack)) == BEGIN + ack


@pytest.mark.parametrize("length", [0, HUFFMAN_LIMIT, HUFFMAN_LIMIT + 1, 64 * 1024])
def test_a_head_of_any_length_is_passed_on_unchanged(length: int) -> None:
    fields = [(b":path", b"/"), (b"authorization", b"~" * length), (b"x", b"y")]
    encoder, decoder = HeadEncoder(), Decoder(max_header_list_size=2**20)
    for _ in range(2):
        assert [tuple(each) for each in decoder.decode(encoder.encode(iter(fields)), raw=True)] == fields


def test_encoding_a_long_header_value_takes_linear_time() -> None:
    """A token of 58 KB once took half a second of the loop each time that it was sent."""
    fields = [(b"authorization", b"~" * 60_000)]
    assert own_seconds(lambda: HeadEncoder().encode(fields)) < 0.1


def test_the_hpack_table_is_bounded_whatever_the_client_allows() -> None:
    """A client that allowed 2 GiB once made the hub store the head of each response, and search all of them for each
    field."""
    encoder, decoder = HeadEncoder(), Decoder()
    for size in [2**31 - 1, 100, 2**31 - 1] * 10_000:
        encoder.header_table_size = size
    assert len(encoder.table_size_changes) == 2, "what the next head says, after 30,000 SETTINGS"
    for number in range(1_000):
        fields = [(b":status", b"200"), (b"audit-id", b"%d" % number)]
        assert [tuple(each) for each in decoder.decode(encoder.encode(fields), raw=True)] == fields
    assert encoder.header_table._current_size <= MAX_TABLE
