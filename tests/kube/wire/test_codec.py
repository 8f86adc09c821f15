"""The contract of a codec, in both encodings, for kube-apiserver's responses and for malformed input."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import StatusError, expired, too_large_version
from kube.wire.api_objects import decode_object
from kube.wire.codec import MAX_FRAME, Codec, WatchFrame, codec_for
from kube.wire.codec_base import CHUNK, INITIAL_EVENTS_ENDED, ListMeta, in_pieces, item_kind, read_status
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits
from kube.wire.json_fields import JsonFields
from kube.wire.protobuf_codec import MAGIC, delimited
from tests.kube.support.recorded import LISTS, OBJECTS, STREAMS, body, obj, single

SERVICE = ("v1", "Service")
encodings = st.sampled_from(Encoding)


@pytest.fixture
def codec(encoding: Encoding) -> Codec:
    return codec_for(encoding)


def read(codec: Codec, *chunks: bytes) -> list[WatchFrame]:
    """Return all events of a stream that ends correctly."""
    reader = codec.frames()
    frames = [frame for chunk in chunks for frame in reader.feed(chunk)]
    reader.close()
    return frames


def comparable(frames: list[WatchFrame]) -> list[tuple[object, ...]]:
    """Return events as comparable values."""
    return [(*frame[:4], frame.status and frame.status.to_dict()) for frame in frames]


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(stream) + 1) for position in cuts), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(edges)]


# Lists


@pytest.mark.parametrize("name", LISTS)
def test_a_list_survives_encoding_and_decoding(name: str, codec: Codec) -> None:
    page = codec.decode_list(body(name, codec.encoding))
    assert page.items
    again = codec.decode_list(
        bytes(codec.encode_list(page.api_version, page.kind, ListMeta(page.version), page.items))
    )
    assert (again.api_version, again.kind, again.version, again.items) == (
        page.api_version,
        page.kind,
        page.version,
        page.items,
    )


@given(
    encoding=encodings,
    items=st.lists(st.binary(max_size=400), max_size=30),
    version=st.integers(1, 2**40),
    piece=st.integers(1, 1000),
)
def test_the_pieces_of_a_list_make_the_complete_list(
    encoding: Encoding, items: list[bytes], version: int, piece: int
) -> None:
    def joined(items: list[bytes]) -> bytes:
        """Return a list of services as its definition requires."""
        if encoding is Encoding.JSON:
            head = b'{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":['
            return b"".join((head % version, b",".join(items), b"]}\n"))
        metadata = b"\x0a\x00" + delimited(b"\x12", b"%d" % version) + b"\x1a\x00"
        raw = b"".join([delimited(b"\x0a", metadata), *(delimited(b"\x12", item) for item in items)])
        type_meta = delimited(b"\x0a", b"v1") + delimited(b"\x12", b"ServiceList")
        return MAGIC + delimited(b"\x0a", type_meta) + delimited(b"\x12", raw) + b"\x1a\x00\x22\x00"

    with patch("kube.wire.codec_base.CHUNK", piece):
        body = codec_for(encoding).encode_list("v1", "Service", ListMeta(version), items)
        pieces = list(body)
    assert b"".join(pieces) == bytes(body) == joined(items)
    assert body.size == len(bytes(body))
    empty = len(joined([]))
    assert max(map(len, pieces)) <= empty + piece + 400 + 4 * len(items)


@pytest.mark.parametrize("name", LISTS)
def test_both_encodings_decode_to_the_same_list(name: str) -> None:
    pages = [codec_for(encoding).decode_list(body(name, encoding)) for encoding in Encoding]
    in_json, in_protobuf = (
        (
            *(page.api_version, page.kind, page.version, page.continue_token, page.remaining),
            [codec_for(encoding).peek(raw) for raw in page.items],
        )
        for encoding, page in zip(Encoding, pages, strict=True)
    )
    assert in_json == in_protobuf


def test_an_item_of_a_list_equals_the_object(codec: Codec) -> None:
    page = codec.decode_list(body("services.list", codec.encoding))
    (item,) = (decode_object(codec.encoding, page.api_version, page.kind, raw) for raw in page.items)
    alone = single("services.single", codec.encoding)[2]
    assert item.encode() == alone or json.loads(item.encode()) == json.loads(alone)


def test_the_metadata_of_a_page_is_read_and_written(codec: Codec) -> None:
    page = codec.decode_list(body("services.page", codec.encoding))
    assert (len(page.items), page.remaining) == (1, 1)
    assert page.continue_token
    decoded = codec.decode_list(body("services.list", codec.encoding))
    assert (decoded.continue_token, decoded.remaining) == ("", None)
    ours = codec.decode_list(bytes(codec.encode_list(*SERVICE, ListMeta(7, "more", 3), [])))
    assert (ours.version, ours.continue_token, ours.remaining) == (7, "more", 3)


def test_decoding_an_object_as_a_list_is_a_value_error(codec: Codec) -> None:
    with pytest.raises(ValueError, match='"Service" is not the kind of a list'):
        codec.decode_list(body("services.single", codec.encoding))


def test_a_list_with_a_malformed_version_is_a_value_error(codec: Codec) -> None:
    good = bytes(codec.encode_list(*SERVICE, ListMeta(77), []))
    with pytest.raises(ValueError, match="invalid syntax"):
        codec.decode_list(good.replace(b"77", b"x7"))


# Single objects


@pytest.mark.parametrize("name", OBJECTS)
def test_peek_reads_name_version_and_labels(name: str, codec: Codec) -> None:
    api_version, kind, raw = single(name, codec.encoding)
    peek, decoded = codec.peek(raw), decode_object(codec.encoding, api_version, kind, raw)
    assert peek == (decoded.namespace, decoded.name, decoded.version, decoded.labels)
    assert list(peek.labels) == list(decoded.labels)
    assert peek.version > 0


def test_peek_refuses_a_malformed_version(codec: Codec) -> None:
    api_version, kind, raw = single("services.single", codec.encoding)
    service = decode_object(codec.encoding, api_version, kind, raw)
    service.fields.child("metadata").set("resourceVersion", "")
    assert codec.peek(service.encode()).version == 0
    service.fields.child("metadata").set("resourceVersion", "7a")
    with pytest.raises(ValueError, match="invalid syntax"):
        codec.peek(service.encode())


@pytest.mark.parametrize("name", ["services.single", "pods.single", "services.metadata"])
def test_the_version_of_an_encoded_object_is_replaced(name: str, codec: Codec) -> None:
    api_version, kind, raw = single(name, codec.encoding)
    before = codec.peek(raw)
    changed = codec.with_version(raw, 4711)
    assert codec.peek(changed) == before._replace(version=4711)
    back = decode_object(codec.encoding, api_version, kind, codec.with_version(changed, before.version))
    original = decode_object(codec.encoding, api_version, kind, raw)
    back.fields.child("metadata").set("resourceVersion", "same")
    original.fields.child("metadata").set("resourceVersion", "same")
    assert back.encode() == original.encode()


def test_metadata_only_equals_the_servers(codec: Codec) -> None:
    raw = codec.metadata_only(single("services.single", codec.encoding)[2])
    expected = single("services.metadata", codec.encoding)[2]
    assert raw == expected or json.loads(raw) == json.loads(expected)


@pytest.mark.parametrize("kind", ["", "List", "Table", "Service", "ServiceLists"])
def test_a_kind_without_the_list_suffix_is_a_value_error(kind: str) -> None:
    with pytest.raises(ValueError, match="is not the kind of a list"):
        item_kind(kind)


def test_a_status_of_the_server_is_decoded(encoding: Encoding) -> None:
    invalid = read_status(obj("services.invalid", encoding).fields)
    assert (invalid.code, invalid.reason, invalid.retry_after) == (422, "Invalid", None)
    assert invalid.message.endswith("resourceVersionMatch is forbidden unless resourceVersion is provided")
    assert dict(invalid.details) == {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                "field": "resourceVersionMatch",
            }
        ],
    }
    future = read_status(obj("services.future", encoding).fields)
    assert (future.code, future.reason, future.retry_after) == (504, "Timeout", 1)
    assert future.details["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert future.details["retryAfterSeconds"] == 1
    odd = obj("services.missing", encoding).fields
    odd.set("code", 200)
    assert read_status(odd).code == 500
    missing = read_status(obj("services.missing", encoding).fields)
    assert (missing.code, dict(missing.details)) == (404, {"name": "nobody", "kind": "services"})


def test_an_empty_status_is_an_internal_error() -> None:
    empty = read_status(JsonFields({"details": [], "code": "410"}, Edits()))
    assert (empty.code, empty.reason, empty.message, dict(empty.details)) == (500, "", "", {})


# Watches


@given(name=st.sampled_from(STREAMS), encoding=encodings, cuts=st.lists(st.integers(0, 2**20), max_size=8))
def test_a_stream_is_decoded_equally_however_it_is_split(
    name: str, encoding: Encoding, cuts: list[int]
) -> None:
    codec, stream = codec_for(encoding), body(name, encoding)
    assert comparable(read(codec, *cut(stream, cuts))) == comparable(read(codec, stream))


@pytest.mark.parametrize("name", STREAMS)
def test_both_encodings_decode_to_the_same_events(name: str) -> None:
    def summary(codec: Codec, stream: bytes) -> list[tuple[object, ...]]:
        summary: list[tuple[object, ...]] = []
        for frame in read(codec, stream):
            if frame.status is not None:
                summary.append((*frame[:3], frame.status.to_dict()))
                continue
            peek = codec.peek(frame.raw)
            # A bookmark has the cluster's current version, and the two streams were recorded one after the other.
            summary.append((*frame[:3], peek._replace(version=0) if frame.type == "BOOKMARK" else peek))
        return summary

    in_json, in_protobuf = (summary(codec_for(each), body(name, each)) for each in Encoding)
    assert in_json == in_protobuf


def test_the_events_of_a_watch_are_decoded(codec: Codec) -> None:
    frames = read(codec, body("configmaps.watch", codec.encoding))
    assert [(frame.type, codec.peek(frame.raw).name) for frame in frames] == [
        ("ADDED", "rich"),
        ("MODIFIED", "rich"),
        ("ADDED", "gone"),
        ("DELETED", "gone"),
    ]
    versions = [codec.peek(frame.raw).version for frame in frames]
    assert versions == sorted(set(versions))


def test_the_bookmark_that_ends_initial_events_is_recognized(codec: Codec) -> None:
    *_, recorded = read(codec, body("services.initial", codec.encoding))
    version = codec.peek(recorded.raw).version
    assert recorded.type == "BOOKMARK"
    (ours,) = read(codec, codec.encode_bookmark(*SERVICE, version, INITIAL_EVENTS_ENDED))
    assert ours[:3] == recorded[:3]
    bookmarks = [decode_object(codec.encoding, *SERVICE, frame.raw) for frame in (recorded, ours)]
    assert bookmarks[0].annotations == bookmarks[1].annotations == {"k8s.io/initial-events-end": "true"}
    assert bookmarks[0].version == bookmarks[1].version == version
    (plain,) = read(codec, codec.encode_bookmark(*SERVICE, version))
    assert decode_object(codec.encoding, *SERVICE, plain.raw).annotations == {}


def test_an_expired_watch_is_decoded_as_an_error(codec: Codec) -> None:
    (frame,) = read(codec, body("services.expired", codec.encoding))
    assert (frame.type, frame.api_version, frame.kind) == ("ERROR", "v1", "Status")
    assert frame.status is not None
    assert (frame.status.code, frame.status.reason) == (410, "Expired")
    assert frame.status.message.startswith("too old resource version: 1 (")


@pytest.mark.parametrize(
    "error",
    [
        expired("too old"),
        too_large_version(9, 7),
        StatusError(500, "", ""),
        StatusError(418, "Odd", "\u4e16"),
    ],
    ids=lambda error: str(error.code),
)
def test_errors_survive_encoding_and_decoding(error: StatusError, codec: Codec) -> None:
    (frame,) = read(codec, codec.encode_error(error))
    assert frame.status is not None
    assert frame.status.to_dict() == error.to_dict()
    assert frame.status.retry_after == error.retry_after
    status = decode_object(codec.encoding, "v1", "Status", frame.raw).fields
    assert read_status(status).to_dict() == error.to_dict()
    assert status.text("status") == "Failure"


# Malformed streams


@pytest.mark.parametrize("name", ["services.watch", "services.initial", "services.expired"])
def test_a_truncated_stream_gives_its_complete_events_and_an_error(name: str, codec: Codec) -> None:
    def event_ends(stream: bytes, encoding: Encoding) -> list[int]:
        """Return the offsets at which each event of a recorded stream is complete, by the sender's framing only."""
        if encoding is Encoding.JSON:
            return [position for position in range(len(stream)) if stream[position : position + 1] == b"\n"]
        ends, position = [], 0
        while position < len(stream):
            position += 4 + int.from_bytes(stream[position : position + 4])
            ends.append(position)
        return ends

    stream = body(name, codec.encoding)
    uncut, ends = read(codec, stream), event_ends(stream, codec.encoding)
    assert len(ends) == len(uncut)
    # A JSON event is complete without its newline.
    newline = codec.encoding is Encoding.JSON
    boundaries = {0, *ends, *(end + newline for end in ends)}
    for size in range(len(stream) + 1):
        reader = codec.frames()
        assert comparable(reader.feed(stream[:size])) == comparable(uncut[: sum(end <= size for end in ends)])
        if size in boundaries:
            reader.close()
        else:
            with pytest.raises(ValueError, match="the watch ended within an event"):
                reader.close()


@pytest.mark.parametrize("garbage", [b"{", b"\xff"])
def test_malformed_bytes_are_a_value_error(codec: Codec, garbage: bytes) -> None:
    """`tests/fuzz` has more cases."""
    for read in (
        codec.decode_list,
        codec.decode_single,
        codec.peek,
        codec.metadata_only,
        lambda raw: codec.with_version(raw, 7),
        lambda raw: codec.frames().feed(b"\0\0\0\1" + raw),
    ):
        with pytest.raises(ValueError, match=r"."):
            read(garbage)


def test_a_reader_fails_again_after_an_error(codec: Codec) -> None:
    garbage, torn = codec.frames(), codec.frames()
    with pytest.raises(ValueError, match=r"."):
        garbage.feed(b"\0\0\0\1\xff")
    torn.feed(body("services.watch", codec.encoding)[:20])
    with pytest.raises(ValueError, match="within an event"):
        torn.close()
    for again in (garbage.close, torn.close, lambda: garbage.feed(b"\n"), lambda: torn.feed(b"\n")):
        with pytest.raises(ValueError, match="the watch was broken before: "):
            again()


def test_an_event_is_accepted_up_to_the_maximum_size(codec: Codec) -> None:
    def frame_overhead() -> int:
        """Return the additional length bytes of a large frame, less those that are not counted."""
        return -1 if codec.encoding is Encoding.JSON else 3 * 3 - 4

    def four_byte_varint(number: int) -> bytes:
        groups = [number >> shift & 0x7F for shift in (0, 7, 14, 21)]
        return bytes(group | 0x80 for group in groups[:3]) + bytes(groups[3:])

    def padded(size: int) -> bytes:
        """Return a raw object about this much larger than an empty one."""
        if codec.encoding is Encoding.JSON:
            return b'{"kind":"Service","apiVersion":"v1","x":"%b"}' % (b"x" * size)
        return b"\xfa\x3e" + four_byte_varint(size) + b"x" * size

    small = codec.encode_event("ADDED", *SERVICE, padded(0))
    overhead = len(small) + frame_overhead()
    largest = codec.encode_event("ADDED", *SERVICE, padded(MAX_FRAME - overhead))
    chunks = [largest[start : start + 65536] for start in range(0, len(largest), 65536)]
    (frame,) = read(codec, *chunks)
    assert frame.raw == padded(MAX_FRAME - overhead)
    too_large = codec.encode_event("ADDED", *SERVICE, padded(MAX_FRAME - overhead + 32))
    for cuts in ([], [1000, 65536, MAX_FRAME]):
        reader = codec.frames()
        with pytest.raises(ValueError, match="over the limit"):
            [reader.feed(chunk) for chunk in cut(too_large, cuts)]


def test_pieces_are_not_referenced_while_their_reader_waits() -> None:
    """A watch whose client did not read once made the hub store each event of its last piece twice."""
    pieces = in_pieces([bytes(CHUNK)] * 2)
    assert sys.getrefcount(next(pieces)) == sys.getrefcount([])
