"""The minimal schema is extracted from Kubernetes' published one: a wrong number would read another field."""

from __future__ import annotations

import pytest
from google.protobuf.internal import api_implementation

from kube.message_table import Messages
from kube.schemas.published import messages, published_text
from kube.wire.schema import KINDS, MESSAGES, METADATA, FieldKind, message_type_of
from scripts.building.minimal_schema import MINIMAL_FILE, VIEWS, WIRE, cut

LINES = """\
@api.shop.v1
=shop.example.com/v1
Order!|1 metadata other.Meta?|2 items [Item|3  Base
"""


def test_the_fast_protobuf_runtime_is_installed() -> None:
    assert api_implementation.Type() == "upb"


def test_the_schema_file_equals_the_extract_of_the_published_messages() -> None:
    cut_out = "".join(f"{line}\n" for line in cut(published_text()))
    assert MINIMAL_FILE.read_text() == cut_out, "scripts/schemas --minimal --write"


def test_each_field_equals_the_published_one() -> None:
    table = Messages(MINIMAL_FILE.read_text())
    numbers = set()
    for message in table:
        package, _, name = message.name.rpartition(".")
        published = messages().message(VIEWS[name][0] if package == WIRE else message.name)
        for field in message.fields.values():
            numbers.add((message.name, field.number))
            found = next(each for each in published.fields.values() if each.number == field.number)
            assert found.name in (field.name, "")
            if package != WIRE:
                assert found._replace(name=field.name) == field
    assert {name for name, _ in numbers} == MESSAGES.keys() - {f"{WIRE}.Nothing"}
    assert len(numbers) == sum(len(each.kinds) for each in MESSAGES.values())


def test_every_kind_but_status_has_a_message_with_metadata() -> None:
    lacking = {
        kind for kind, message in KINDS.items() if message.kinds.get("metadata") is not FieldKind.CHILD
    }
    assert lacking == {("v1", "Status")}


def test_a_kind_that_the_schema_lacks_has_its_metadata() -> None:
    assert message_type_of("storage.k8s.io/v1", "CSINode") is METADATA
    assert message_type_of("example.com/v1", "Service") is METADATA
    assert message_type_of("v1", "Unknown") is METADATA


def test_a_name_that_is_not_published_is_refused() -> None:
    order = {"api.shop.v1.Order": "metadata base="}
    assert list(cut(LINES, order, {})) == [
        "@api.shop.v1",
        "=shop.example.com/v1",
        "Order!|1 metadata other.Meta?|3 base Base",
        f"@{WIRE}",
    ]
    with pytest.raises(ValueError, match=r"not published: api.shop.v1.Item"):
        list(cut(LINES, {**order, "api.shop.v1.Item": "price"}, {}))
    with pytest.raises(ValueError, match=r"api.shop.v1.Order has no field lines"):
        list(cut(LINES, {"api.shop.v1.Order": "metadata lines"}, {}))


@pytest.mark.parametrize("raw", [b"\x0a", b"\x0a\xff", b"\x0a\x02\x0a\x05", b"\xff" * 11, b"\x0b"])
def test_malformed_bytes_are_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a protobuf api.core.v1.Service"):
        MESSAGES["api.core.v1.Service"].parse(raw)
