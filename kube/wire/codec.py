"""The codecs of the two encodings, and the names that users of a codec need."""

from kube.wire.codec_base import (
    INITIAL_EVENTS_END,
    MAX_FRAME,
    META_GROUP,
    Codec,
    FrameReader,
    ListPage,
    ObjectPeek,
    WatchFrame,
)
from kube.wire.encoding import Encoding
from kube.wire.json_codec import JsonCodec
from kube.wire.protobuf_codec import ProtobufCodec

__all__ = [
    "INITIAL_EVENTS_END",
    "MAX_FRAME",
    "META_GROUP",
    "Codec",
    "FrameReader",
    "ListPage",
    "ObjectPeek",
    "WatchFrame",
    "codec_for",
]

_CODECS: dict[Encoding, Codec] = {codec.encoding: codec for codec in (JsonCodec(), ProtobufCodec())}


def codec_for(encoding: Encoding) -> Codec:
    """The codec of an encoding. Codecs have no state, so there is one of each."""
    return _CODECS[encoding]
