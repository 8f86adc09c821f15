"""The judge itself is judged on bytes written by hand."""

from __future__ import annotations

import pytest

from tests.kube.support.wire_walker import LENGTH, VARINT, WireField, content, find, walk

MESSAGE = bytes.fromhex("08 9601  12 03 616263  12 02 0a00  1d 01020304")


def test_fields_come_in_order() -> None:
    assert list(walk(MESSAGE))[:2] == [WireField(1, VARINT, b"\x96\x01"), WireField(2, LENGTH, b"abc")]
    assert find(MESSAGE, 2) == [b"abc", b"\x0a\x00"]
    assert find(b"\x12\x02\x0a\x00", 2, 1) == [b""]


@pytest.mark.parametrize("torn", ["08", "0896", "120361", "1d0102", "0b"])
def test_what_is_no_message_is_refused(torn: str) -> None:
    with pytest.raises(ValueError, match=r"torn|wire type"):
        list(walk(bytes.fromhex(torn)))


def test_content_is_blind_to_order_only_where_it_may_be() -> None:
    one, other = bytes.fromhex("0a04 0801 1002"), bytes.fromhex("0a04 1002 0801")
    assert content(one, {1: {}}) == content(other, {1: {}})
    assert content(one, {}) != content(other, {})
    assert content(one, {1: {}}) != content(one + one, {1: {}})
