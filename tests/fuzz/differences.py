"""Fuzz target: watches of differences give the same events however they are split, or are refused cheaply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube.differences.records import state_records
from kube.wire.codec import codec_for
from kube.wire.codec_base import WatchFrame
from kube.wire.encoding import Encoding
from tests.fuzz.objects import ENCODINGS, check_object, choose, uncut_and_cut
from tests.kube.support.differences import Holder, written
from tests.kube.support.recorded import STREAMS, body


def seeds() -> Iterator[bytes]:
    for number, encoding in enumerate(ENCODINGS):
        codec = codec_for(encoding)
        for name in STREAMS:
            stream = body(name, encoding)
            records = [*written(codec, codec.frames().feed(stream)), *state_records([stream])]
            yield bytes([number, 200]) + b"".join(records)


def run(data: bytes) -> None:
    encoding, rest = choose(data)
    (uncut, is_broken), (pieces, are_broken) = uncut_and_cut(rest, lambda chunks: _read(encoding, chunks))
    assert is_broken == are_broken
    assert [each[:4] for each in uncut] == [each[:4] for each in pieces]
    for each in pieces[:4]:
        if each.status is None:
            check_object(encoding, each.api_version, each.kind, each.raw)


def _read(encoding: Encoding, chunks: Iterable[bytes]) -> tuple[list[WatchFrame], bool]:
    """Return the events until the stream ends or breaks, and whether it broke."""
    holder = Holder(codec_for(encoding))
    try:
        for chunk in chunks:
            holder.feed(chunk)
        holder.read(b"")
    except ValueError:  # an UnusableRecord, or an object in a complete event that no store can read
        return holder.events, True
    return holder.events, False
