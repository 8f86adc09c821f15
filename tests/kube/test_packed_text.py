"""Texts that are kept packed: they come back as they were, from any thread, and take a fraction of their size."""

from __future__ import annotations

import gc
import sys
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kube.packed_text import WORTH_PACKING, PackedText, packed

ENDPOINT = b'{"addresses":["10.1.2.%d"],"conditions":{"ready":true},"nodeName":"node-%d"}'
SLICE = b"[" + b",".join(ENDPOINT % (number, number % 3) for number in range(100)) + b"]"


@given(st.binary(max_size=4 * WORTH_PACKING))
def test_a_text_comes_back_as_it_was(text: bytes) -> None:
    for kept in (PackedText(text), packed(text)):
        assert bytes(kept) == text
        assert len(kept) == len(text)


def test_a_packed_slice_takes_a_fraction_of_its_size() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        kept = [packed(SLICE[number:]) for number in range(100)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < sum(map(len, kept)) / 5
    assert sum(map(sys.getsizeof, kept)) < sum(map(len, kept)) / 5
