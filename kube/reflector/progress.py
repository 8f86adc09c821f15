"""Learns the cloud's writes of one kind since a version, with some hundred bytes for any number of objects.

A list of one object gives kube-apiserver's current version, but not the writes of this kind up to it. kube-apiserver
sends a bookmark two seconds before a watch ends, so a short watch proves that its events are all that there were up to
the bookmark.
"""

from __future__ import annotations

from kube.http.client import Client
from kube.reflector.history_verifier import HistoryDiverged
from kube.reflector.list_pages import codec_of
from kube.reflector.list_watch import ListWatch
from kube.store.history import LastSeenEvent
from kube.wire.api_objects import decode_object
from kube.wire.codec import Codec, WatchFrame

SECONDS = 3
"""Seconds of a short watch. Its bookmark comes after one second; a shorter watch has none."""
MARGIN = 5.0
"""Seconds after the end of a short watch at which the link counts as dead."""
SHORT_WATCHES = 2
"""The number of short watches, in sequence, until a bookmark is new enough.

Before 1.31, etcd reports its progress to kube-apiserver every five seconds.
"""


class NoBookmark(Exception):
    """No bookmark was new enough: the server sends none, or is far behind its database."""


async def newest_event(
    client: Client, list_watch: ListWatch, known: int, version: int, last_event: LastSeenEvent | None = None
) -> tuple[int, int]:
    """Return a version that the cloud has reached, at least `version`, and the version of the last event up to it
    (`known` if none).

    The caller has seen all events up to `known`, the last of which is `last_event`. If the history is unverified, the
    cloud must send that event first. Raises HistoryDiverged if it does not; NoBookmark; ValueError for a malformed
    response; and the client's errors.
    """
    reading = _Reading(known, version, last_event)
    names = list_watch._replace(metadata_only=True)
    for _ in range(SHORT_WATCHES):
        query = names.watch_query(reading.begin, SECONDS, bookmarks=True)
        accept = names.accept_as("PartialObjectMetadata")
        async with client.watch(names.path, query=query, accept=accept, timeout=SECONDS + MARGIN) as stream:
            codec = codec_of(stream.content_type)
            frames = codec.frames()
            async for chunk in stream.chunks:
                for frame in frames.feed(chunk):
                    reading.read_frame(codec, frame)
                if reading.reached >= version:
                    return reading.reached, reading.newest
    raise NoBookmark


class _Reading:
    """The results of short watches so far."""

    def __init__(self, known: int, version: int, last_event: LastSeenEvent | None) -> None:
        self.newest = self._known = known
        self.begin = last_event.version - 1 if last_event is not None else known
        self.reached = 0
        self._version = version
        self._last_event = last_event

    def read_frame(self, codec: Codec, frame: WatchFrame) -> None:
        if frame.status is not None:
            raise frame.status
        if frame.type == "BOOKMARK":
            found = decode_object(codec.encoding, frame.api_version, frame.kind, frame.raw).version
            if self._last_event is None:
                self.reached = self.begin = max(self.reached, found)
            return
        if self.reached >= self._version:
            return  # older than the bookmark that counts
        peek = frame.peek or codec.peek(frame.raw)
        if self._last_event == ((peek.namespace, peek.name), peek.version):
            self._last_event, self.begin = None, self._known
        elif self._last_event is not None or peek.version <= self._known:
            raise HistoryDiverged(f"{peek.namespace}/{peek.name} was written at version {peek.version}")
        else:
            self.newest = self.begin = max(self.newest, peek.version)
