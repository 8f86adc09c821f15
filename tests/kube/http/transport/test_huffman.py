"""The decoder gives what hpack's gives, for code and for noise, however many steps it caches."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hypothesis import example, given
from hypothesis import strategies as st

from kube.http.transport import huffman

ENCODED = st.binary(max_size=40).map(HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode)


@pytest.fixture(scope="module", params=[huffman.MAX_STEPS, 3])
def decoder(request: pytest.FixtureRequest) -> Iterator[huffman.HuffmanDecoder]:
    with mock.patch.object(huffman, "MAX_STEPS", request.param):
        yield huffman.HuffmanDecoder()


@given(ENCODED | st.binary(max_size=8))
@example(b"")
@example(b"\xff\xff\xff\xff")
def test_a_text_is_decoded_as_by_hpack(decoder: huffman.HuffmanDecoder, coded: bytes) -> None:
    try:
        text = decode_huffman(coded)
    except HPACKDecodingError:
        with pytest.raises(HPACKDecodingError):
            decoder.decode(coded)
    else:
        assert decoder.decode(coded) == text
