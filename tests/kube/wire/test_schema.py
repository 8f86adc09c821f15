"""The table is judged by what Kubernetes publishes: a wrong number would read as absent, or as another field."""

from __future__ import annotations

import pytest
from google.protobuf.internal import api_implementation

from kube.schemas.message_table import messages
from kube.wire.schema import ENTRY, KINDS, MANY, MESSAGES, ONE, TABLE, message_type_of

PUBLISHED = {"s": "string", "[s": "string", "{s": ENTRY, "i": "int32", "l": "int64", "b": "bool"}
"""Type of the table, by how often and as what a field is in Kubernetes' own table."""


def test_the_runtime_is_the_fast_one() -> None:
    assert api_implementation.Type() == "upb"


def test_each_field_of_a_kind_has_the_number_and_the_type_that_kubernetes_publishes() -> None:
    seen = set()
    waiting = [(name, messages().of_kind(*kind)) for kind, name in KINDS.items()]
    while waiting:
        name, published = waiting.pop()
        assert published is not None
        seen.add(name)
        fields = {field.name: field for field in published.fields.values()}
        for field, (number, kind, label) in TABLE[name].items():
            want = fields[field]
            assert (name, field, number, label) == (
                name,
                field,
                want.number,
                MANY if want.cardinality.value else ONE,
            )
            if kind in TABLE and kind != ENTRY:
                waiting.append((kind, messages().message(want.kind)))
            else:
                assert (kind, field) == (PUBLISHED[want.cardinality.value + want.kind], field)
    # What is on the wire but not of a kind is tested with the codec.
    of_the_wire = {"TypeMeta", "Unknown", "RawExtension", "WatchEvent", "ListMeta", "PartialObjectMetadata"}
    made_for_reading = {"AnyList", "AnyMetadata", "Peek", "PeekMeta", "Nothing", ENTRY}
    assert TABLE.keys() - seen == of_the_wire | made_for_reading


def test_every_kind_but_status_has_a_message_with_metadata() -> None:
    assert {name for name in KINDS.values() if "metadata" not in TABLE[name]} == {"Status"}


def test_a_kind_that_the_table_lacks_has_its_metadata() -> None:
    assert message_type_of("storage.k8s.io/v1", "CSINode").name == "PartialObjectMetadata"
    assert message_type_of("example.com/v1", "Service").name == "PartialObjectMetadata"


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\xff", b"\x0a\x02\x0a\x05", b"\xff" * 11, b"\x0b"])
def test_malformed_bytes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a protobuf Service"):
        MESSAGES["Service"].parse(raw)
