"""Encodes a watcher's frames for its client: unchanged, or as differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from kube.differences.records import CODING, event_record, plain_record, state_records
from kube.store.ring import RingEvent
from kube.wire.codec_base import in_pieces


@dataclass(frozen=True, slots=True)
class StreamCoding:
    """One way to write a stream of frames. It has no state, so that all watchers share it."""

    name: str
    """The Content-Encoding, "" for none."""
    state: Callable[[Iterable[bytes]], Iterator[bytes]]
    """Writes the frames of a whole state, in pieces that are made as they are taken."""
    event: Callable[[RingEvent], bytes]
    """Writes one event of a view's history."""
    frame: Callable[[bytes], bytes]
    """Writes a frame of this one stream: a bookmark or an error."""


def _difference(event: RingEvent) -> bytes:
    # Only events from before the view's first watcher of differences have no record.
    return event.record or event_record(event.frame, None)


PLAIN = StreamCoding("", lambda frames: map(b"".join, in_pieces(frames)), attrgetter("frame"), bytes)
"""The frames as a kube-apiserver sends them."""
DIFFERENCES = StreamCoding(CODING, state_records, _difference, plain_record)
"""Records of `kube.differences.records`. The view packs each event once, for all its watchers."""
