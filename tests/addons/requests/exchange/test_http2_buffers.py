"""What hpack makes of heads for a client's connection: short work, and a bounded memory."""

from __future__ import annotations

import pytest
from hpack import Decoder

from addons.requests.exchange.http2_buffers import LONGEST_CODED, MAX_TABLE, HeadEncoder
from tests.support.cpu_time import own_seconds


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


def test_a_head_remembers_no_more_than_it_may_however_much_a_client_allows() -> None:
    """A client that allowed 2 GiB had the hub keep the head of each answer, and search all of them for each field."""
    encoder, decoder = HeadEncoder(), Decoder()
    for size in [2**31 - 1, 100, 2**31 - 1] * 10_000:
        encoder.header_table_size = size
    assert len(encoder.table_size_changes) == 2, "what the next head says, after 30,000 SETTINGS"
    for number in range(1_000):
        fields = [(b":status", b"200"), (b"audit-id", b"%d" % number)]
        assert [tuple(each) for each in decoder.decode(encoder.encode(fields), raw=True)] == fields
    assert encoder.header_table._current_size <= MAX_TABLE
