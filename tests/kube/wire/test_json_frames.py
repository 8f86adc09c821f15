"""A JSON watch: streams without one event per line, truncated streams, and malformed events."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kube.wire.codec_base import WatchFrame
from kube.wire.encoding import Encoding
from kube.wire.json_codec import JsonCodec
from tests.kube.support.recorded import body
from tests.support.cpu_time import own_seconds

CODEC = JsonCodec()

FORMS: dict[str, Callable[[list[bytes]], bytes]] = {
    "as recorded": lambda lines: b"\n".join(lines) + b"\n",
    "no newline at the end": b"\n".join,
    "nothing between": b"".join,
    "blank lines": lambda lines: b"\r\n \n\t\r\n".join([b"", *lines, b""]),
    "indented": lambda lines: b"\n".join(json.dumps(json.loads(line), indent=2).encode() for line in lines),
    "indented, nothing between": lambda lines: b"".join(
        json.dumps(json.loads(line), indent="\t").encode() for line in lines
    ),
    "two a line": lambda lines: b"".join(
        line + (b"\n" if number % 2 else b"") for number, line in enumerate(lines)
    ),
}
"""Forms in which the same events may be written."""


def stream_lines() -> list[bytes]:
    """Return real events, and some with braces and quotes inside strings."""
    tricky = ['}{"]', "\\", '\\"', "\\\\", "\u2028\n", "{" * 9, '"}\n{"type":"ADDED"']
    texts = [
        json.dumps({"type": "ADDED", "object": {"kind": "C", "apiVersion": "v1", "data": {text: text}}})
        for text in tricky
    ]
    return [*body("services.watch", Encoding.JSON).splitlines(), *(text.encode() for text in texts)]


def events(*chunks: bytes) -> list[WatchFrame]:
    reader = CODEC.frames()
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    reader.close()
    return frames


@pytest.mark.parametrize("form", FORMS)
def test_any_form_of_a_stream_gives_the_same_events(form: str) -> None:
    lines = stream_lines()
    stream = FORMS[form](lines)
    expected = [json.loads(line) for line in lines]
    for chunks in ([stream], [bytes((byte,)) for byte in stream]):
        found = [{"type": frame.type, "object": json.loads(frame.raw)} for frame in events(*chunks)]
        assert found == expected


def test_a_chunk_that_ends_with_a_brace_is_not_always_an_event() -> None:
    line = stream_lines()[0] + b"\n"
    after = line.index(b"}") + 1
    reader = CODEC.frames()
    assert reader.feed(line[:after]) == []
    assert [frame.type for frame in reader.feed(line[after:] + line + line)] == ["ADDED"] * 3


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"hello\n", "does not begin with a brace"),
        (b"[]\n", "does not begin with a brace"),
        (b"{}\n", "not a watch event type"),
        (b'{"type":7,"object":{}}\n', "not a watch event type"),
        (b'{"type":["ADDED"],"object":{}}\n', "not a watch event type"),
        (b'{"type":"SYNCED","object":{}}\n', "not a watch event type"),
        (b'{"type":"ADDED"}\n', "is b'null'"),
        (b'{"type":"ADDED","object":[]}\n', r"is b'\[\]'"),
        (b'{"type":"ADDED","object":{"kind":"C"}}\n', "apiVersion and kind"),
        (b'{"type":"ERROR","object":{"kind":"C","apiVersion":"v1"}}\n', "not a Status"),
        (b'{"type":"ADDED",}\n', "trailing comma"),
        (b'{"type":"ADDED"]\n', "malformed"),
        (b'{"type":"\xff"}\n', "utf-8"),
    ],
)
def test_a_malformed_event_is_a_value_error(stream: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CODEC.frames().feed(stream)


@pytest.mark.parametrize("between", [b"\n", b""], ids=["lines", "nothing between"])
def test_parsing_time_grows_linearly_with_the_bytes(between: bytes) -> None:
    def seconds(*chunks: bytes) -> float:
        return own_seconds(lambda: events(*chunks))

    item = b'{"a":"b}"},'

    def large(count: int) -> bytes:
        return (
            b'{"type":"ADDED","object":{"kind":"C","apiVersion":"v1","l":[%b0]}}' % (item * count) + between
        )

    def chunks(count: int) -> list[bytes]:
        stream = large(count) * 2
        return [stream[start : start + 1024] for start in range(0, len(stream), 1024)]

    small = min(seconds(*chunks(2_000)) for _ in range(3))
    assert min(seconds(*chunks(32_000)) for _ in range(2)) < 16 * 4 * small
