"""Many requests in one packet are handled a few at a time, and others are served in between."""

from __future__ import annotations

import pytest
from hyperframe.frame import DataFrame, Frame, HeadersFrame, PingFrame

from addons.requests.exchange.client_turns import AT_ONCE, PAUSE, PREFACE, ClientTurns, Frames

BEGIN = bytes(PREFACE)


def heads(count: int) -> bytes:
    return b"".join(HeadersFrame(2 * number + 1, b"x").serialize() for number in range(count))


def pieces(*data: bytes) -> list[bytes]:
    """What is handed out, one go after another, when data comes in such pieces."""
    frames, found = Frames(), []
    for each in data:
        frames.add(each)
        found.append(frames.take())
        while frames.has_more:
            found.append(frames.take())
    return found


def test_a_few_requests_are_handed_out_at_once() -> None:
    found = pieces(BEGIN + heads(2 * AT_ONCE + 1))
    assert found == [BEGIN + heads(AT_ONCE), *_rest(AT_ONCE), heads(2 * AT_ONCE + 1)[-10:]]


def _rest(count: int) -> list[bytes]:
    size = len(heads(count))
    return [heads(2 * count)[size:]]


@pytest.mark.parametrize("size", [1, 7, 10, 24, 100, 100_000])
@pytest.mark.parametrize(
    "frames",
    [
        [HeadersFrame(1, b"x" * 50), DataFrame(1, b"y" * 16_000), DataFrame(1, b"y" * 300)],
        [PingFrame(0, b"x" * 8)] * 300,
        [
            each
            for number in range(1, 200, 2)
            for each in (HeadersFrame(number, b"x"), DataFrame(number, b""))
        ],
    ],
    ids=["a body", "pings", "requests"],
)
def test_all_is_handed_out_in_order(frames: list[Frame], size: int) -> None:
    sent = BEGIN + b"".join(each.serialize() for each in frames)
    assert b"".join(pieces(*(sent[at : at + size] for at in range(0, len(sent), size)))) == sent


def test_a_body_is_handed_out_as_it_comes() -> None:
    body = DataFrame(1, b"y" * 100_000).serialize()
    assert pieces(BEGIN + body[:40_000], body[40_000:]) == [BEGIN + body[:40_000], body[40_000:]]


def test_turns_follow_each_other() -> None:
    order = ClientTurns()
    assert not order.is_busy(100.0)
    assert [order.next(100.0) for _ in range(3)] == pytest.approx([PAUSE, 2 * PAUSE, 3 * PAUSE])
    assert order.is_busy(100.0 + 2 * PAUSE)
    assert not order.is_busy(100.0 + 4 * PAUSE)
    assert order.next(200.0) == pytest.approx(PAUSE)
