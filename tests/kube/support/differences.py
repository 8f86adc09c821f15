"""Sender and receiver of a watch of differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from kube.differences.reader import DifferenceReader
from kube.differences.records import Former, event_record
from kube.wire.codec import Codec
from kube.wire.codec_base import WatchFrame

Objects = dict[tuple[str, str], tuple[int, bytes]]
"""Version and raw form of the objects on one side."""


class Holder:
    """A receiver that applies each event before it reads the next."""

    def __init__(self, codec: Codec, held: Objects | None = None) -> None:
        self.held: Objects = held or {}
        self.events: list[WatchFrame] = []
        """All events read, including those before an error."""
        self._codec = codec
        self._reader = DifferenceReader(codec, lambda namespace, name: self.held.get((namespace, name)))

    def feed(self, chunk: bytes) -> list[WatchFrame]:
        begin = len(self.events)
        for frame in self._reader.feed(chunk):
            self.events.append(frame)
            _apply(self._codec, self.held, frame)
        return self.events[begin:]

    def read(self, rest: bytes) -> list[WatchFrame]:
        """Return the events of the complete stream."""
        frames = self.feed(rest)
        self._reader.close()
        return frames


def written(codec: Codec, frames: Iterable[WatchFrame]) -> Iterator[bytes]:
    """Encode a watch like a sender that knows the receiver's objects: those of the previous frames."""
    held: Objects = {}
    for frame in frames:
        former = None
        if frame.status is None:
            peek = codec.peek(frame.raw)
            if (known := held.get((peek.namespace, peek.name))) is not None:
                former = Former(peek.namespace, peek.name, *known)
        _apply(codec, held, frame)
        plain = codec.encode_event(frame.type, frame.api_version, frame.kind, frame.raw)
        yield event_record(plain, former)


def endpoint_slice(name: str, version: int, *, ready: bool = True) -> bytes:
    """Return a slice of 50 endpoints in JSON, of which the first is `ready` or not."""
    endpoints = [
        {
            "addresses": [f"10.0.{number // 8}.{number * 37 % 250}"],
            "conditions": {"ready": ready if number == 0 else True},
            "nodeName": f"node-{number * 7919 % 1000}",
            "targetRef": {"kind": "Pod", "name": f"web-{number * 2654435761 % 2**32:08x}"},
        }
        for number in range(50)
    ]
    meta = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    head = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": meta}
    return orjson.dumps({**head, "addressType": "IPv4", "endpoints": endpoints})


def _apply(codec: Codec, held: Objects, frame: WatchFrame) -> None:
    if frame.type in ("BOOKMARK", "ERROR"):
        return
    peek = codec.peek(frame.raw)
    key = peek.namespace, peek.name
    if frame.type == "DELETED":
        held.pop(key, None)
    else:
        held[key] = peek.version, frame.raw
