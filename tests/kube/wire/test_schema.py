"""The table is judged by what a kube-apiserver sent: a wrong number would read as absent, or as another field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.internal import api_implementation

from kube.wire.encoding import Encoding
from kube.wire.fields import Edits, Fields
from kube.wire.protobuf_fields import ProtobufFields
from kube.wire.schema import ENTRY, KINDS, MANY, MESSAGES, TABLE, FieldKind, message_type_of
from tests.kube.support.recorded import SINGLES, obj, single

NOT_RECORDED = {
    # Never on the wire of an object of the API, and tested with the codec.
    *(f"{message}." for message in ("TypeMeta", "Unknown", "RawExtension", "WatchEvent", "ListMeta")),
    *(f"{message}." for message in ("AnyList", "AnyMetadata", "Peek", "PeekMeta", "Nothing", ENTRY)),
    # Servers dropped the version; compared with v1 below.
    "EndpointSliceV1beta1.",
    "EndpointV1beta1.",
    # What a GET never answers, and what today's server drops from a new object.
    "StatusDetails.uid",
    # Answers to a POST; tests/hub/test_offline_writes.py has them from a real server.
    *(f"{message}." for message in ("TokenRequest", "TokenRequestStatus", "Time")),
    "Endpoint.deprecatedTopology",
}


def filled(fields: Fields, message: str) -> Iterator[str]:
    """The fields of the table that are there, with their messages."""
    for name, (_, kind, label) in TABLE[message].items():
        if not fields.has(name):
            continue
        yield f"{message}.{name}"
        if kind in TABLE and kind != ENTRY:
            for child in fields.children(name) if label == MANY else [fields.child(name)]:
                yield from filled(child, kind)


def test_the_runtime_is_the_fast_one() -> None:
    assert api_implementation.Type() == "upb"


def test_each_field_of_the_table_is_in_what_the_server_sent() -> None:
    seen: set[str] = set()
    for name in SINGLES:
        api_version, kind, _ = single(name, Encoding.PROTOBUF)
        seen.update(filled(obj(name, Encoding.PROTOBUF).fields, message_type_of(api_version, kind).name))
    missing = {
        f"{message}.{field}"
        for message, fields in TABLE.items()
        for field in fields
        if not {f"{message}.", f"{message}.{field}"} & NOT_RECORDED
    }
    assert missing - seen == set()


def test_every_kind_but_status_has_a_message_with_metadata() -> None:
    assert {name for name in KINDS.values() if "metadata" not in TABLE[name]} == {"Status"}


@pytest.mark.parametrize("message", TABLE)
def test_numbers_and_types_of_a_message(message: str) -> None:
    fields = TABLE[message].values()
    assert len({number for number, _, _ in fields}) == len(fields)
    types = {kind for _, kind, _ in fields}
    assert types - TABLE.keys() <= {"string", "int32", "int64", "bool", "bytes"}


def test_v1beta1_differs_from_v1_by_topology_and_zone() -> None:
    v1 = dict(TABLE["Endpoint"])
    del v1["zone"]  # its number is that of hints in v1beta1
    topology = v1.pop("deprecatedTopology")
    assert TABLE["EndpointV1beta1"] == {**v1, "topology": topology}
    v1_slice = {**TABLE["EndpointSlice"], "endpoints": (2, "EndpointV1beta1", MANY)}
    assert TABLE["EndpointSliceV1beta1"] == v1_slice


def test_the_two_endpoint_ports_are_told_apart() -> None:
    ports = {"EndpointSlice": b"\x0a\x01p\x12\x03TCP\x18\x50", "Endpoints": b"\x0a\x01p\x10\x50\x1a\x03TCP"}
    for message, raw in ports.items():
        owner = TABLE[message if message == "EndpointSlice" else "EndpointSubset"]
        port_type = MESSAGES[owner["ports"][1]]
        port = ProtobufFields(port_type, port_type.parse(raw), Edits())
        assert (port.text("name"), port.text("protocol"), port.number("port")) == ("p", "TCP", 80)


@pytest.mark.parametrize(
    ("message", "field", "kind"),
    [
        ("ObjectMeta", "labels", FieldKind.MAPPING),
        ("Service", "spec", FieldKind.CHILD),
        ("EndpointSlice", "endpoints", FieldKind.CHILDREN),
        ("Endpoint", "addresses", FieldKind.TEXTS),
        ("EndpointConditions", "ready", FieldKind.FLAG),
        ("ListMeta", "remainingItemCount", FieldKind.NUMBER),
        ("AnyList", "items", FieldKind.RAWS),
        ("Unknown", "raw", FieldKind.RAW),
    ],
)
def test_kinds_of_fields(message: str, field: str, kind: FieldKind) -> None:
    assert MESSAGES[message].kinds[field] is kind


def test_a_kind_that_the_table_lacks_has_its_metadata() -> None:
    assert message_type_of("storage.k8s.io/v1", "CSINode").name == "PartialObjectMetadata"
    assert message_type_of("example.com/v1", "Service").name == "PartialObjectMetadata"


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\xff", b"\x0a\x02\x0a\x05", b"\xff" * 11, b"\x0b"])
def test_malformed_bytes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a protobuf Service"):
        MESSAGES["Service"].parse(raw)
