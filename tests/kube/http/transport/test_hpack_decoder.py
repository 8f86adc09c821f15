"""The decoder restores header blocks of hpack's encoder, and refuses malformed ones."""

from __future__ import annotations

import pytest
from hpack import Encoder, NeverIndexedHeaderTuple
from hypothesis import given
from hypothesis import strategies as st

from kube.http.transport.hpack_decoder import HpackDecoder
from kube.http.transport.hpack_encoder import TABLE_SIZE
from kube.http.transport.http2_framing import EndCode, PeerError

FIELDS = st.tuples(
    st.sampled_from([b":status", b"accept", b"x", b"x-a"]),
    st.sampled_from([b"200", b"", b"a"]) | st.binary(max_size=40) | st.just(b"~" * TABLE_SIZE),
)
HEADS = st.tuples(
    st.none() | st.integers(0, TABLE_SIZE),
    st.lists(FIELDS | FIELDS.map(lambda field: NeverIndexedHeaderTuple(*field)), max_size=6),
    st.booleans(),
)


@given(st.lists(HEADS, max_size=12))
def test_a_header_block_is_decoded_unchanged(
    sent: list[tuple[int | None, list[tuple[bytes, bytes]], bool]],
) -> None:
    encoder, decoder = Encoder(), HpackDecoder(2**20)
    for table_size, fields, is_packed in sent:
        if table_size is not None:
            encoder.header_table_size = table_size
        assert decoder.decode(encoder.encode(fields, huffman=is_packed)) == [tuple(field) for field in fields]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x80", "without a number"),
        (b"\xff\x00", "range"),
        (b"\xc0", "range"),
        (b"\xff\x80", "range"),
        (b"\xff\xff\xff\xff\xff\xff\x7f", "too large"),
        (b"\x88\x20", "within a head"),
        (b"\x3f\xe2\x1f", "too large"),
        (b"\x40\x05abc", "cut off"),
        (b"\x40\x01a", "range"),
        (b"\x40\x81\xff\x00", "Huffman"),
    ],
)
def test_a_malformed_header_block_ends_the_connection(block: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why) as caught:
        HpackDecoder(1000).decode(block)
    assert caught.value.code == EndCode.COMPRESSION_ERROR


def test_a_header_block_that_repeats_a_long_field_is_bounded() -> None:
    decoder = HpackDecoder(10_000)
    first = Encoder().encode([(b"x", b"~" * 3000)], huffman=False)
    assert len(decoder.decode(first + b"\xbe" * 2)) == 3
    with pytest.raises(PeerError, match="more than 10000 bytes"):
        decoder.decode(b"\xbe" * 4)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused_like_by_hpack(block: bytes) -> None:
    def refusal() -> int | None:
        """Return the error code that closes the connection; None for a valid header block."""
        try:
            HpackDecoder(1000).decode(block)
        except PeerError as error:
            return error.code
        return None

    assert refusal() in (None, EndCode.COMPRESSION_ERROR)
