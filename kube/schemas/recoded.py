"""Converts an object between the encodings, for all callers in the hub."""

from __future__ import annotations

from kube.schemas.json_objects import json_object
from kube.schemas.protobuf_objects import protobuf_object
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json


def recoded(obj: Encoded, encoding: Encoding) -> Encoded:
    """Convert an object to an encoding. LookupError for a kind that has no protobuf, ValueError for a malformed
    object."""
    if obj.codec.encoding is encoding:
        return obj
    if encoding is Encoding.JSON:
        raw = write_json(json_object(obj.api_version, obj.kind, obj.raw))
    else:
        typed = {**parse_object(obj.raw), "apiVersion": obj.api_version, "kind": obj.kind}
        raw = protobuf_object(typed)
    return Encoded(codec_for(encoding), obj.api_version, obj.kind, raw)
