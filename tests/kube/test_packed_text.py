"""Compressed texts: decompressed unchanged, from any thread, at a fraction of their size."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.packed_text import COMPRESSION_THRESHOLD, PackedText, packed

ENDPOINT = b'{"addresses":["10.1.2.%d"],"conditions":{"ready":true},"nodeName":"node-%d"}'
SLICE = b"[" + b",".join(ENDPOINT % (number, number % 3) for number in range(100)) + b"]"


@given(st.binary(max_size=4 * COMPRESSION_THRESHOLD))
def test_a_text_is_decompressed_unchanged(text: bytes) -> None:
    for packed_text in (PackedText(text), packed(text)):
        assert bytes(packed_text) == text
        assert len(packed_text) == len(text)


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, bytes), (COMPRESSION_THRESHOLD - 1, bytes), (COMPRESSION_THRESHOLD, PackedText)],
)
def test_short_text_is_not_compressed(size: int, expected: type) -> None:
    assert type(packed(b"x" * size)) is expected


def test_a_compressed_slice_takes_a_fraction_of_its_size() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        packed_text = [packed(SLICE[number:]) for number in range(100)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < sum(map(len, packed_text)) / 5
    assert sum(map(sys.getsizeof, packed_text)) < sum(map(len, packed_text)) / 5


def test_threads_compress_and_decompress_concurrently() -> None:
    texts = [SLICE[number:] for number in range(200)]
    with ThreadPoolExecutor(4) as threads:
        packed_text = list(threads.map(PackedText, texts))
        assert list(threads.map(bytes, packed_text)) == texts
