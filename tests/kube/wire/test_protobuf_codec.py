"""The protobuf encoding, byte for byte like kube-apiserver's, checked by an independent walker."""

from __future__ import annotations

import struct
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.wire import protobuf_codec
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC, ProtobufCodec, delimited, open_envelope
from tests.kube.support.recorded import LISTS, STREAMS, body
from tests.kube.support.wire_walker import find, walk

CODEC = ProtobufCodec()
ENVELOPE = bytes.fromhex("6b387300 0a0d 0a027631 1207 53657276696365 1203 0a0178 1a00 2200")
"""k8s\\0, {v1, Service}, a raw message of three bytes, and the two empty fields."""


@pytest.mark.parametrize("name", [name for name in LISTS if name != "services.page"])
def test_an_encoded_list_equals_the_servers(name: str) -> None:
    original = body(name, Encoding.PROTOBUF)
    page = CODEC.decode_list(original)
    assert (
        bytes(CODEC.encode_list(page.api_version, page.kind, ListMeta(page.version), page.items)) == original
    )


@pytest.mark.parametrize("name", STREAMS)
def test_encoded_frames_equal_the_servers(name: str) -> None:
    stream = body(name, Encoding.PROTOBUF)
    frames = CODEC.frames().feed(stream)
    assert b"".join(CODEC.encode_event(*frame[:4]) for frame in frames) == stream


def test_a_frame_is_decoded_by_the_independent_walker() -> None:
    frame = CODEC.encode_event("MODIFIED", "v1", "Service", b"\x0a\x01x")
    assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
    assert find(frame[4:], 1) == [b"MODIFIED"]
    assert find(frame[4:], 2, 1) == [ENVELOPE]


@given(st.binary(max_size=300))
def test_frames_are_split_by_their_lengths(content: bytes) -> None:
    assert [field.content for field in walk(delimited(b"\x12", content))] == [content]


@pytest.mark.parametrize("size", [0, 100, 127, 128, 200, 16383, 16384, 2**21])
def test_invalid_lengths_of_an_event_are_refused(size: int) -> None:
    raw = b"x" * size
    (frame,) = CODEC.frames().feed(CODEC.encode_event("ADDED", "v1", "Service", raw))
    assert frame.raw == raw


@pytest.mark.parametrize(
    "envelope",
    [b"", b"k8s", b"k8s\x01" + ENVELOPE[4:], ENVELOPE[4:], ENVELOPE[:-1], MAGIC + b"\x0a\x02\x0a\x05"],
)
def test_a_malformed_envelope_is_a_value_error(envelope: bytes) -> None:
    with pytest.raises(
        ValueError, match=r"not Kubernetes protobuf|not a protobuf apimachinery.pkg.runtime.Unknown"
    ):
        open_envelope(envelope)


def test_an_envelope_may_lack_its_kind() -> None:
    assert open_envelope(MAGIC + b"\x12\x01x") == ("", "", b"x")


def test_a_kind_that_is_not_utf8_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not UTF-8"):
        open_envelope(ENVELOPE.replace(b"Service", b"Servic\xff"))


FRAMES = {
    "an unknown type": (1, b"SYNCED", "not a watch event type"),
    "no type": (1, b"", "not a watch event type"),
    "an error that is no Status": (1, b"ERROR", "not a Status"),
    "an object without magic": (2, b"\x0a\x01x", "not Kubernetes protobuf"),
}


@pytest.mark.parametrize("what", FRAMES)
def test_a_malformed_protobuf_event_is_a_value_error(what: str) -> None:
    number, content, message = FRAMES[what]
    fields = {1: b"ADDED", 2: delimited(b"\x0a", ENVELOPE), number: content}
    event = delimited(b"\x0a", fields[1]) + delimited(b"\x12", fields[2])
    with pytest.raises(ValueError, match=message):
        CODEC.frames().feed(struct.pack(">I", len(event)) + event)


def test_a_length_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    with pytest.raises(ValueError, match="an event of 16777217 bytes is over the limit"):
        CODEC.frames().feed(struct.pack(">I", 16 * 1024 * 1024 + 1))


def test_repeated_metadata_fields_are_merged() -> None:
    raw = delimited(b"\x0a", b"\x0a\x01n") + b"\x12\x00" + delimited(b"\x0a", b"\x1a\x01s")
    assert CODEC.peek(raw) == ("s", "n", 0, {})
    assert find(CODEC.metadata_only(raw), 1) == [b"\x0a\x01n\x1a\x01s"]
    assert CODEC.peek(CODEC.metadata_only(raw)) == ("s", "n", 0, {})


def test_malformed_details_of_an_upstreams_status_are_left_out() -> None:
    odd = StatusError(
        500,
        "Odd",
        "a\udcffb",
        {"name": 7, "kind": "k\udc00", "uid": None, "causes": [1, {"reason": [], "message": "m"}], "x": {}},
    )
    (frame,) = CODEC.frames().feed(CODEC.encode_error(odd))
    assert frame.status is not None
    assert frame.status.message == "a?b"
    assert dict(frame.status.details) == {"kind": "k?", "causes": [{"message": "m"}]}


ITEMS = [b"", b"\x0a\x01x", b"\x0a\x7d" + b"y" * 125]
PAGE = bytes(CODEC.encode_list("v1", "Service", ListMeta(7), ITEMS))


@pytest.mark.parametrize("body", [PAGE, bytes(CODEC.encode_list("v1", "Service", ListMeta(7), []))])
def test_a_long_list_is_parsed_equally_in_parts(body: bytes) -> None:
    at_once = CODEC.decode_list(body)
    with patch.object(protobuf_codec, "LONG_LIST", 40):
        assert CODEC.decode_list(body) == at_once


LISTS_BEYOND = {
    "empty objects": bytes(CODEC.encode_list("v1", "Service", ListMeta(7), [b""] * 101)),
    "an object": bytes(CODEC.encode_list("v1", "Service", ListMeta(7), [bytes(1001)])),
    "an envelope of much else": MAGIC + b"\x1a\x00" * 500,
    "much besides the items": MAGIC + delimited(b"\x12", b"\x0a\x00" * 500),
    "numbers": MAGIC + b"\x28\x00" * 500,
    "cut off": PAGE[:60],
    "no protobuf": bytes(1000),
}


@pytest.mark.parametrize("body", LISTS_BEYOND.values(), ids=LISTS_BEYOND)
def test_a_long_list_beyond_the_limits_is_refused(body: bytes) -> None:
    with (
        patch.multiple(protobuf_codec, LONG_LIST=50, MAX_ITEMS=100, MAX_FRAME=1000),
        pytest.raises(ValueError, match=r"list|protobuf"),
    ):
        CODEC.decode_list(body)
