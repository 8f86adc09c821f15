"""The table is judged by what a kube-apiserver sent, in which every field of it is filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kube.objects.status_schema import MAPS, QUANTITY, STATUS_TABLE, TIME, Shown, parse_message
from kube.wire.encoding import Encoding
from kube.wire.schema import ENTRY, KINDS, TABLE
from tests.kube.support.recorded import single

NOT_RECORDED = {
    # Today's server drops a node's config where there was none, and nothing ever sets a selfLink.
    "NodeStatus.config",
    *(f"NodeConfigStatus.{name}" for name in STATUS_TABLE["NodeConfigStatus"]),
    *(f"NodeConfigSource.{name}" for name in STATUS_TABLE["NodeConfigSource"]),
    *(f"ConfigMapNodeConfigSource.{name}" for name in STATUS_TABLE["ConfigMapNodeConfigSource"]),
    "ObjectMeta.selfLink",
    f"{TIME}.nanos",
}


def filled(name: str, message: Any) -> Iterator[str]:
    """The fields of the table that hold something."""
    for field, spec in STATUS_TABLE[name].items():
        value = getattr(message, field)
        if not (message.HasField(field) if not spec.many else value):
            continue
        if spec.kind in STATUS_TABLE:
            for each in value if spec.many else [value]:
                if each.ByteSize():
                    yield f"{name}.{field}"
                yield from filled(spec.kind, each)
        elif value or spec.shown is Shown.PRESENT:
            yield f"{name}.{field}"


def test_each_field_of_the_table_is_in_what_the_server_sent() -> None:
    seen: set[str] = set()
    for fixture in ("nodes.full", "pods.full"):
        _, kind, raw = single(fixture, Encoding.PROTOBUF)
        seen.update(filled(kind, parse_message(kind, raw)))
    fields = {f"{name}.{field}" for name, fields in STATUS_TABLE.items() for field in fields}
    assert fields - seen == NOT_RECORDED


def test_the_table_of_the_filters_agrees() -> None:
    of_filters, of_statuses = {}, {}
    for name in TABLE.keys() & STATUS_TABLE.keys() - {"ObjectMeta"}:
        for field in TABLE[name].keys() & STATUS_TABLE[name].keys():
            number, kind, _ = TABLE[name][field]
            spec = STATUS_TABLE[name][field]
            of_filters[name, field] = number, kind
            of_statuses[name, field] = spec.number, spec.kind
    assert of_filters
    assert of_filters == of_statuses


@pytest.mark.parametrize("name", STATUS_TABLE)
def test_numbers_and_types_of_a_message(name: str) -> None:
    fields = STATUS_TABLE[name].values()
    assert len({field.number for field in fields}) == len(fields)
    assert {field.kind for field in fields} - STATUS_TABLE.keys() <= {"string", "int32", "int64", "bool"}
    assert all(field.many for field in fields if field.kind in MAPS)


def test_kinds_are_those_of_the_codec() -> None:
    assert {KINDS["v1", "Node"], KINDS["v1", "Pod"]} <= STATUS_TABLE.keys()
    assert frozenset({ENTRY, QUANTITY}) == MAPS
