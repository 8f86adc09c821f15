"""Cells from the cloud: for the right object and version, and their replacement if they are missing."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from kube.tables.cloud_cells import MAX_TABLE, UNKNOWN, CloudCells
from kube.wire.json_fields import write_json

COLUMNS = [{"name": "Name"}, {"name": "Tier"}, {"name": "Age"}]
KNOWN = ["a", "3m"]


def widget(name: str = "a", version: str = "5") -> Json:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": version}}


def table(*rows: Json, **more: object) -> bytes:
    return write_json({"kind": "Table", "columnDefinitions": COLUMNS, "rows": list(rows), **more})


def row(obj: Json, *cells: object) -> Json:
    return {"cells": list(cells), "object": obj}


def test_the_clouds_cells_are_used_until_the_object_changes() -> None:
    cells = CloudCells()
    cells.learn(table(row(widget(), "a", "gold", "2m")))
    assert cells.of(widget(), KNOWN) == ["a", "gold", "2m"]
    assert (cells.has(widget()), cells.has(widget(version="6")), cells.has(widget("b"))) == (
        True,
        False,
        False,
    )
    cells.learn(table(row(widget(version="6"), "a", "tin", "3m")))
    assert cells.of(widget(version="6"), KNOWN) == ["a", "tin", "3m"]


def test_an_object_without_the_clouds_columns_has_name_and_age() -> None:
    cells = CloudCells()
    assert cells.of(widget(), KNOWN) == KNOWN, "the hub's own columns"
    cells.learn(table(row(widget("b"), "b", "gold", "2m")))
    assert cells.of(widget(), KNOWN) == ["a", UNKNOWN, "3m"]
    cells.forget(widget("b"))
    assert not cells.has(widget("b"))


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b"[]",
        b'{"kind":"WidgetList","items":[]}',
        table(row(widget(), "a")),
        table({"cells": ["a", "gold", "2m"], "object": None}),
        table({"cells": ["a", "gold", "2m"], "object": {"metadata": "a"}}),
        table(columnDefinitions=None),
    ],
    ids=["text", "list", "objects", "short", "bare", "nameless", "headless"],
)
def test_a_malformed_table_is_a_value_error(body: bytes) -> None:
    cells = CloudCells()
    with pytest.raises(ValueError, match=r"."):
        cells.learn(body)
    assert (cells.columns, cells.of(widget(), KNOWN)) == ([], KNOWN)


def test_a_table_beyond_the_bound_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    monkeypatch.setattr("kube.tables.cloud_cells.reached", reached.append)
    with pytest.raises(ValueError, match=str(MAX_TABLE)):
        CloudCells().learn(table() + b" " * MAX_TABLE)
    assert reached == ["a Table of the cloud"]
