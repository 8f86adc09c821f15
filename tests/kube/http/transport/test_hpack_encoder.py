"""hpack's decoder reads the encoded header blocks, however the peer changes the size of its table."""

from __future__ import annotations

from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st

from kube.http.transport.hpack_encoder import TABLE_SIZE, HpackEncoder
from tests.support.cpu_time import own_seconds

NAMES = st.sampled_from([b":path", b"accept", b"authorization", b"x", b"x-a"])
VALUES = st.one_of(st.sampled_from([b"", b"/", b"a"]), st.binary(max_size=40), st.just(b"~" * TABLE_SIZE))
HEADS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
LIMITS = st.none() | st.integers(0, 2 * TABLE_SIZE)


@given(st.lists(st.tuples(st.lists(LIMITS, max_size=2), HEADS), max_size=12))
def test_an_encoded_header_block_is_decoded_unchanged(
    sent: list[tuple[list[int | None], list[tuple[bytes, bytes]]]],
) -> None:
    encoder, decoder = HpackEncoder(), Decoder(max_header_list_size=2**20)
    for limits, fields in sent:
        for limit in limits:
            if limit is not None:
                encoder.resize(limit)
                decoder.max_allowed_table_size = min(limit, TABLE_SIZE)
        assert [tuple(each) for each in decoder.decode(encoder.encode(fields), raw=True)] == fields


def test_a_repeated_field_takes_one_byte() -> None:
    encoder = HpackEncoder()
    fields = [
        (b":method", b"GET"),
        (b":path", b"/api/v1/nodes/n"),
        (b"authorization", b"Bearer " + b"x" * 900),
    ]
    assert len(encoder.encode(fields)) > 500
    assert len(encoder.encode(fields)) == len(fields)


def test_encoding_a_long_value_takes_linear_time() -> None:
    fields = [(b"authorization", b"~" * 60_000)]
    assert own_seconds(lambda: HpackEncoder().encode(fields)) < 0.1
