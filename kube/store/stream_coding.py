"""How a watcher's frames go to its client: as they are, or as differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from kube.differences.records import CODING, event_record, plain_record, state_records
from kube.store.ring import RingEvent
from kube.wire.codec_base import in_pieces


class StreamCoding(ABC):
    """One way to write a stream of frames. It has no state, so that all watchers share it."""

    name: str
    """The Content-Encoding, "" for none."""

    @abstractmethod
    def state(self, frames: Iterable[bytes]) -> Iterator[bytes]:
        """The frames of a whole state, in pieces that are made as they are taken."""

    @abstractmethod
    def event(self, event: RingEvent) -> bytes:
        """One event of a view's history."""

    @abstractmethod
    def frame(self, frame: bytes) -> bytes:
        """A frame of this one stream: a bookmark or an error."""


class Plain(StreamCoding):
    """The frames as a kube-apiserver sends them."""

    name = ""

    def state(self, frames: Iterable[bytes]) -> Iterator[bytes]:
        return (b"".join(piece) for piece in in_pieces(frames))

    def event(self, event: RingEvent) -> bytes:
        return event.frame

    def frame(self, frame: bytes) -> bytes:
        return frame


class Differences(StreamCoding):
    """Records of `kube.differences.records`. The view packs each event once, for all its watchers."""

    name = CODING

    def state(self, frames: Iterable[bytes]) -> Iterator[bytes]:
        return state_records(frames)

    def event(self, event: RingEvent) -> bytes:
        # Only events from before the view's first watcher of differences have no record.
        return event.record or event_record(event.frame, None)

    def frame(self, frame: bytes) -> bytes:
        return plain_record(frame)


PLAIN = Plain()
DIFFERENCES = Differences()
