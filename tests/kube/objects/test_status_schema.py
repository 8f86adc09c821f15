"""The table is judged by what a kube-apiserver sent, in which every field of it is filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kube.objects.status_schema import TIME, Shown, parse_message, status_table
from kube.wire.encoding import Encoding
from tests.kube.support.recorded import single

NOT_RECORDED = {
    # Today's server drops a node's config where there was none, and nothing ever sets a selfLink.
    "NodeStatus.config",
    *(f"NodeConfigStatus.{name}" for name in status_table()["NodeConfigStatus"]),
    *(f"NodeConfigSource.{name}" for name in status_table()["NodeConfigSource"]),
    *(f"ConfigMapNodeConfigSource.{name}" for name in status_table()["ConfigMapNodeConfigSource"]),
    "ObjectMeta.selfLink",
    f"{TIME}.nanos",
}


def filled(name: str, message: Any) -> Iterator[str]:
    """The fields of the table that hold something."""
    for field, spec in status_table()[name].items():
        value = getattr(message, field)
        if not (message.HasField(field) if not spec.many else value):
            continue
        if spec.kind in status_table():
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
    fields = {f"{name}.{field}" for name, fields in status_table().items() for field in fields}
    assert fields - seen == NOT_RECORDED
