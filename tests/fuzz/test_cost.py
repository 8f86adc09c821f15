"""Parsing takes linear time: an input sixteen times as long takes about sixteen times the CPU, not its square."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.differences.records import event_record
from tests.fuzz.program import TARGETS, target
from tests.support.cpu_time import own_seconds

PIECES = {
    "frames": (
        b"{",
        b"}",
        b"[",
        b'"',
        b"\\",
        b'{"a":',
        b'{"kind":"C"},',
        b"\n",
        b"\0\0\0\2ab",
        b"\xff",
        b"\0",
    ),
    "differences": (
        b"\0\0\0\1\0\n",
        b"\0\0\0\0\0",
        event_record(b"\n", None),
        event_record(b"\n" * 200, None),
        b"\xff",
        b"\0",
    ),
    "bodies": (
        b"{",
        b"[",
        b'"',
        b"\\",
        b'{"a":',
        b'{"metadata":{"name":"a"}},',
        b"\x0a\x02\x0a\0",
        b"\x12\x80",
    ),
    "targets": (
        b"a",
        b"/",
        b"%41",
        b",",
        b"!",
        b"=",
        b"a=b,",
        b"(",
        b"a in (b),",
        b"\\",
        b"&watch=1",
        b" ",
        b">1",
        b"1h",
    ),
    "rules": (b"a", b"/", b"#", b";", b",", b"-", b"a/endpoints#list,", b"\0", b"*", b" ", b"\xff"),
    "http2_input": (
        b"\0\0\0\4\0\0\0\0\0",
        b"\0\0\4\x08\0\0\0\0\0\0\0\0\1",
        b"\0\0\0\0\0\0\0\0\1",
        b"\0",
        b"\xff",
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_parsing_time_grows_linearly_with_the_input(name: str) -> None:
    _, run = target(name)

    def seconds(data: bytes) -> float:
        return own_seconds(lambda: run(data))

    times = 16
    # Bytes of the shorter input.
    size = 8_000
    # The tolerance over a linear increase, for measurements on a busy machine.
    margin = 4
    # The minimum CPU seconds for the shorter input: below it the clock is too coarse.
    least = 0.004
    beginnings = {
        "frames": (
            b"\0\xff",
            b"\1\xff",
            b"\0\x10",
            b'\0\xff{"type":"ADDED","object":{"kind":"C","apiVersion":"v1","a":[',
        ),
        "differences": (b"\0\xff", b"\1\xff", b"\1\x10", b"\0\xff\0\0\xff\xff\1"),
        "bodies": (b"\0", b"\1", b'\0{"kind":"CList","apiVersion":"v1","items":[', b"\1k8s\0"),
        "targets": (
            b"\0/api/v1/",
            b"\0/api/v1/pods?labelSelector=",
            b"\0/api/v1/pods?",
            b"\0/version?timeout=",
            b"\0",
            b"\0a in (",
            b"\0a=",
        ),
        "rules": (b"endpoints\0", b"filter_endpoints\0", b"cache_agents\0", b""),
        "http2_input": (b"\xff", b"\x10"),
    }

    @settings(max_examples=12)
    @given(st.sampled_from(beginnings[name]), st.lists(st.sampled_from(PIECES[name]), min_size=1, max_size=3))
    def check(beginning: bytes, pieces: list[bytes]) -> None:
        piece = b"".join(pieces)
        count = size // len(piece)
        short = max(least, min(seconds(beginning + piece * count) for _ in range(2)))
        # Retry once, as the machine may have been busy.
        limit = times * margin * short
        assert any(seconds(beginning + piece * count * times) <= limit for _ in range(2))

    check()
