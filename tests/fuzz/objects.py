"""Invariants of an object decoded by a codec from any bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import orjson

from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

ENCODINGS = tuple(Encoding)
VERSION = 7
"""A resourceVersion that a check writes."""


def choose(data: bytes) -> tuple[Encoding, bytes]:
    """Return the encoding selected by the first byte, and the rest."""
    return ENCODINGS[data[0] % len(ENCODINGS)] if data else ENCODINGS[0], data[1:]


def uncut_and_cut[T](data: bytes, read: Callable[[Iterable[bytes]], T]) -> tuple[T, T]:
    """Read a stream in one piece, and in pieces of the length given by the first byte."""
    step, stream = data[0] + 1 if data else 1, data[1:]
    return read([stream]), read(stream[at : at + step] for at in range(0, len(stream), step))


def check_object(encoding: Encoding, api_version: str, kind: str, raw: bytes) -> None:
    """Assert that a store, a view and a filter raise ValueError, or return an object that reads the same."""
    codec = codec_for(encoding)
    try:
        peek = codec.peek(raw)
        obj = decode_object(encoding, api_version, kind, raw)
    except ValueError:
        return
    assert (obj.namespace, obj.name, obj.version) == (peek.namespace, peek.name, peek.version)
    assert obj.labels == peek.labels
    assert all(isinstance(text, str) for pair in obj.annotations.items() for text in pair)
    for endpoint in obj.fields.children("endpoints"):
        assert isinstance(endpoint.text("nodeName"), str)
        assert all(isinstance(text, str) for text in endpoint.texts("addresses"))
    assert codec.peek(codec.with_version(raw, VERSION)) == peek._replace(version=VERSION)
    meta = codec.peek(codec.metadata_only(raw))
    assert (meta.namespace, meta.name, meta.labels) == (peek.namespace, peek.name, peek.labels)
    (frame,) = codec.frames().feed(codec.encode_event("ADDED", api_version, kind, raw))
    assert frame.type == "ADDED"
    if encoding is Encoding.JSON:
        # A body retains the server's escapes of characters, which a frame need not.
        assert orjson.loads(frame.raw) == orjson.loads(raw)
    else:
        assert frame.raw == raw
