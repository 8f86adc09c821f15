"""One object with its codec: reading a body and writing one gives the same bytes."""

from __future__ import annotations

import pytest

from kube.wire.api_objects import decode_object
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding


def test_a_body_is_encoded_again_to_the_same_bytes(encoding: Encoding) -> None:
    codec = codec_for(encoding)
    empty = b"" if encoding is Encoding.PROTOBUF else b'{"apiVersion":"v1","kind":"Node"}'
    obj = decode_object(encoding, "v1", "Node", empty)
    obj.fields.child("metadata").set("name", "n1")
    made = Encoded.of(codec, obj)
    read = Encoded.read(codec, made.body())
    assert read == made
    assert (read.kind, read.decode().name) == ("Node", "n1")
    # Writing to the decoded object does not change the encoded one.
    read.decode().fields.child("metadata").set("name", "other")
    assert read.decode().name == "n1"


def test_a_malformed_object_is_a_value_error(encoding: Encoding) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each codec says it in its own words
        Encoded.read(codec_for(encoding), b"{")
