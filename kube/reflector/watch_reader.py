"""Reads the events of a watch in the coding in which they come: whole objects, or differences to a store's."""

from __future__ import annotations

from kube.differences.reader import DifferenceReader
from kube.http.client import WatchStream
from kube.reflector.list_pages import Malformed, codec_of
from kube.store.store import Store
from kube.wire.codec import FrameReader


def reader_of(stream: WatchStream, codings: str, store: Store) -> FrameReader | DifferenceReader:
    """A reader for the coding of a watch. Malformed for one that is not among `codings`, which were asked for."""
    codec = codec_of(stream.content_type)
    if not stream.coding:
        return codec.frames()
    if stream.coding not in codings.split(",") or codec is not store.codec:
        raise Malformed(f"watch: it came as {stream.content_type} in {stream.coding}")

    def held(namespace: str, name: str) -> tuple[int, bytes] | None:
        item = store.get((namespace, name))
        return (item.version, item.raw) if item is not None else None

    return DifferenceReader(codec, held)
