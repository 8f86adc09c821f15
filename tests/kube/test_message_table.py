"""The table of messages: the meaning of its lines, its equality with the published schema, and its memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from kube.message_table import FieldCardinality, Messages
from kube.schemas.published import PUBLISHED_FILE, published_text
from scripts.building.schemas import lines_of, source_folders

LINES = """\
@api.shop.v1
=shop.example.com/v1
Order!|1 metadata other.Meta?|2 items [Item|3 notes {s?|4 paid b*?|5  Base
Item|1 price d
Base
@other
Meta|8 created Time!
=other.example.com/v1
Late!
"""


def test_a_line_describes_the_encoding_of_each_field() -> None:
    order = Messages(LINES).of_kind("shop.example.com/v1", "Order")
    assert order is not None
    by_name = {field.name: field for field in order.fields.values()}
    assert [field.kind for field in by_name.values()] == [
        "other.Meta",
        "api.shop.v1.Item",
        "s",
        "b",
        "api.shop.v1.Base",
    ]
    assert [field.cardinality for field in by_name.values()] == [
        FieldCardinality.ONE,
        FieldCardinality.LIST,
        FieldCardinality.MAP,
        FieldCardinality.ONE,
        FieldCardinality.ONE,
    ]
    assert list(order.fields) == [0x0A, 0x12, 0x1A, 0x20, 0x2A]
    assert by_name["paid"].is_pointer
    assert not by_name["paid"].hides_zero


def test_structs_and_fields_without_omitempty_are_always_in_json() -> None:
    table = Messages(LINES)
    order = table.message("api.shop.v1.Order")
    assert [field.name for field in order.always] == ["metadata", "items", ""]
    assert not table.message("other.Meta").always
    assert [field.hides_zero for field in table.message("other.Meta").fields.values()] == [True]


def test_a_kind_that_every_group_has_is_found_in_each_group() -> None:
    table = Messages("@apimachinery.pkg.apis.meta.v1\n=meta.k8s.io/v1\nStatus!|1 code i\n")
    assert table.of_kind("v1", "Status") is table.message("apimachinery.pkg.apis.meta.v1.Status")
    assert table.of_kind("v1", "Other") is None


def test_each_field_has_a_known_type_and_the_table_is_under_three_megabytes() -> None:
    assert PUBLISHED_FILE.stat().st_size < 32 * 1024
    tracemalloc.start()
    try:
        table = Messages(published_text())
        seen = set()
        waiting = [message for kind in table.kinds if (message := table.of_kind(*kind)) is not None]
        while waiting:
            message = waiting.pop()
            if message.name not in seen:
                seen.add(message.name)
                waiting += [table.message(each.kind) for each in message.fields.values() if each.is_message]
        assert len(seen) > 1_000
        assert tracemalloc.get_traced_memory()[0] < 3 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.real
def test_the_table_equals_the_schema_published_by_kubernetes(cloud_programs: dict[str, Path]) -> None:
    assert cloud_programs
    text = "".join(f"{line}\n" for folder in source_folders() for line in lines_of(folder))
    assert published_text() == text
