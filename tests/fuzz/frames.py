"""Fuzz target: watches in both encodings give the same events however they are split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube.wire.codec import codec_for
from kube.wire.codec_base import WatchFrame
from kube.wire.encoding import Encoding
from tests.fuzz.objects import ENCODINGS, check_object, choose, uncut_and_cut
from tests.kube.support.recorded import STREAMS, body


def seeds() -> Iterator[bytes]:
    for number, encoding in enumerate(ENCODINGS):
        for name in STREAMS:
            for step in (3, 200):
                yield bytes([number, step]) + body(name, encoding)


def run(data: bytes) -> None:
    encoding, rest = choose(data)
    (uncut, is_broken), (pieces, are_broken) = uncut_and_cut(rest, lambda chunks: _read(encoding, chunks))
    assert is_broken == are_broken
    if not is_broken:
        assert [_said(each) for each in uncut] == [_said(each) for each in pieces]
    for each in pieces[:4]:
        assert (each.status is not None) == (each.type == "ERROR")
        if each.status is None:
            check_object(encoding, each.api_version, each.kind, each.raw)


def _read(encoding: Encoding, chunks: Iterable[bytes]) -> tuple[list[WatchFrame], bool]:
    """Return the events until the stream ends or breaks, and whether it broke."""
    reader = codec_for(encoding).frames()
    frames: list[WatchFrame] = []
    try:
        for chunk in chunks:
            frames += reader.feed(chunk)
        reader.close()
    except ValueError:
        return frames, True
    return frames, False


def _said(frame: WatchFrame) -> tuple[str, str, str, bytes, str]:
    return frame.type, frame.api_version, frame.kind, frame.raw, str(frame.status)
