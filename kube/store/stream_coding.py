"""Encodes a watcher's frames for its client: unchanged, or as differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from kube.differences.records import CODING, plain_record, state_records
from kube.wire.codec_base import in_pieces


class ViewEvent(NamedTuple):
    """A change as the clients of a view get it. `sequence` is 0 for the cloud's changes (`kube.store.change_log`)."""

    version: int
    sequence: int
    frame: bytes
    record: Callable[[], bytes]
    """Returns the event as a difference (`kube.differences.records`)."""


@dataclass(frozen=True, slots=True)
class StreamCoding:
    """A coding of a watch stream. It has no state, so that all watchers share it."""

    name: str
    """The Content-Encoding, "" for none."""
    state: Callable[[Iterable[bytes]], Iterator[bytes]]
    """Encodes the frames of an initial state, lazily, in pieces."""
    event: Callable[[ViewEvent], bytes]
    """Encodes one event of a view."""
    frame: Callable[[bytes], bytes]
    """Encodes a frame of one stream only: a bookmark or an error."""


PLAIN = StreamCoding("", lambda frames: map(b"".join, in_pieces(frames)), attrgetter("frame"), bytes)
"""The frames as kube-apiserver sends them."""
DIFFERENCES = StreamCoding(CODING, state_records, lambda event: event.record(), plain_record)
"""Records of `kube.differences.records`. The view encodes each event once, for all its watchers."""
