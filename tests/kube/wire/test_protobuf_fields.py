"""Properties of protobuf: unknown fields are preserved byte for byte, and the schema defines the writable fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kube.message_table import META, FieldCardinality, Messages
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields
from kube.wire.schema import message_type_of
from scripts.building.minimal_schema import MINIMAL_FILE
from tests.kube.support.recorded import SINGLES, obj, single
from tests.kube.support.wire_walker import Tree, content, find

TABLE = Messages(MINIMAL_FILE.read_text())

SLICE, ENDPOINT = "api.discovery.v1.EndpointSlice", "api.discovery.v1.Endpoint"
UNKNOWN = bytes.fromhex("fa3e04 6b657074  c03e 9601  cd3e 01020304")
"""Fields 1007, 1000 and 1001: a string, a number and a fixed32 that no message of the API has."""


def tree(message: str) -> Tree:
    """Return the fields that the runtime may reorder: in known messages, and in map entries."""
    return {
        field.number: {} if field.cardinality is FieldCardinality.MAP else tree(field.kind)
        for field in TABLE.message(message).fields.values()
        if field.is_message or field.cardinality is FieldCardinality.MAP
    }


def rewritten(original: ApiObject) -> bytes:
    """Encode again after a write that restores the same content."""
    owner, name = original.fields.child("metadata"), "resourceVersion"
    if original.kind == "Status":
        owner, name = original.fields, "message"
    text = owner.text(name)
    owner.set(name, "changed")
    owner.set(name, text)
    return original.encode()


@pytest.mark.parametrize("name", SINGLES)
@pytest.mark.parametrize("more", [b"", UNKNOWN], ids=["as recorded", "with unknown fields"])
def test_every_field_survives_a_rewrite(name: str, more: bytes) -> None:
    api_version, kind, raw = single(name, Encoding.PROTOBUF)
    message = message_type_of(api_version, kind).name
    original = decode_object(Encoding.PROTOBUF, api_version, kind, raw + more)
    assert content(rewritten(original), tree(message)) == content(raw + more, tree(message))


def test_unknown_fields_of_inner_messages_and_entries_survive() -> None:
    def field(number: int, inner: bytes) -> bytes:
        return bytes((number << 3 | 2, len(inner))) + inner

    entry = field(1, b"k") + field(2, b"v") + UNKNOWN
    metadata = field(6, b"7") + field(11, entry) + UNKNOWN
    endpoint = UNKNOWN + field(1, b"10.0.0.1") + field(2, b"\x08\x01" + UNKNOWN)
    raw = field(2, endpoint) + field(1, metadata) + field(2, endpoint)
    original = decode_object(Encoding.PROTOBUF, "discovery.k8s.io/v1", "EndpointSlice", raw)
    assert (original.labels, original.version) == ({"k": "v"}, 7)
    assert content(rewritten(original), tree(SLICE)) == content(raw, tree(SLICE))
    assert original.encode().count(UNKNOWN) == 6


def test_keep_leaves_the_remaining_messages_unmodified() -> None:
    original = obj("endpointslices.single", Encoding.PROTOBUF)
    before = original.encode()
    assert original.fields.keep("endpoints", lambda endpoint: endpoint.text("nodeName") != "n2") == 1
    endpoints = find(before, 2)
    retained = [content(each, tree(ENDPOINT)) for each in find(original.encode(), 2)]
    assert retained == [content(each, tree(ENDPOINT)) for each in (endpoints[0], endpoints[2])]
    # hints and targetRef, which the schema lacks
    assert find(original.encode(), 2, 8) == [find(before, 2, 8)[0]]
    assert find(original.encode(), 2, 4) == find(before, 2, 4)
    assert find(original.encode(), 1, 17) == find(before, 1, 17)


def test_known_fields_with_an_unknown_wire_type_survive() -> None:
    raw = bytes.fromhex("0a02 0807  10 05")  # metadata.name and spec as numbers
    service = decode_object(Encoding.PROTOBUF, "v1", "Service", raw)
    assert (service.name, service.fields.child("spec").text("type")) == ("", "")
    service.fields.child("spec").set("type", "ClusterIP")
    assert find(service.encode(), 1) == [b"\x08\x07"]
    assert b"\x05" in find(service.encode(), 2)


def test_a_string_that_is_not_utf8_is_preserved() -> None:
    raw = bytes.fromhex("0a0f 0a02ff61 5a09 0a02 6b65 1203 ff76fe")
    service = decode_object(Encoding.PROTOBUF, "v1", "Service", raw)
    assert service.name == "\ufffda"
    assert service.labels == {"ke": "\ufffdv\ufffd"}
    assert b"\xff\x61" in rewritten(service)


def test_the_last_of_two_entries_with_one_key_is_used() -> None:
    raw = bytes.fromhex("1206 0a016b 120161  1206 0a016b 120162")
    assert decode_object(Encoding.PROTOBUF, "v1", "ConfigMap", raw).fields.mapping("data") == {"k": "b"}


@pytest.mark.parametrize(
    "mistake",
    [
        lambda fields: fields.set("loadBalancerIP", "192.0.2.1"),
        lambda fields: fields.set("ports", "80"),
        lambda fields: fields.set_texts("type", ["ClusterIP"]),
        lambda fields: fields.set_mapping("ports", {}),
        lambda fields: fields.add("clusterIPs"),
        lambda fields: fields.keep("clusterIPs", bool),
        lambda fields: fields.clear("externalIPs"),
        lambda fields: fields.child("sessionAffinityConfig").set("app", "web"),
    ],
)
def test_writing_a_field_missing_in_the_schema_is_an_error(mistake: Callable[[Fields], object]) -> None:
    service = obj("services.single", Encoding.PROTOBUF)
    before = service.encode()
    with pytest.raises(LookupError, match="cannot write"):
        mistake(service.fields.child("spec"))
    assert service.encode() is before


def test_a_kind_that_the_schema_lacks_has_its_metadata_only() -> None:
    _, _, raw = single("services.single", Encoding.PROTOBUF)
    unknown = decode_object(Encoding.PROTOBUF, "example.com/v1", "Thing", raw)
    assert (unknown.name, unknown.fields.has("spec")) == ("rich", False)
    assert content(rewritten(unknown), {1: tree(f"{META}.ObjectMeta")}) == content(
        raw, {1: tree(f"{META}.ObjectMeta")}
    )
