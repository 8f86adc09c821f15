"""What a Table has beside its cells. `test_server_table_real.py` holds Tables against a kube-apiserver's."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from kube.tables.server_table import table
from tests.kube.support.tables import cells, objects


@pytest.mark.parametrize(
    ("include", "kind"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "Pod")]
)
def test_a_row_has_what_was_asked_for_beside_its_cells(include: str, kind: str | None) -> None:
    (row,) = table([objects()["Pod", "failed"]], "v1", "Pod", {}, include)["rows"]
    assert (row["object"] or {}).get("kind") == kind
    assert [each["reason"] for each in row["conditions"]] == ["Failed"]


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, {"metadata": {"name": "a"}}])
def test_of_a_kind_whose_columns_are_unknown_there_are_name_and_age(obj: Json) -> None:
    found = cells({"apiVersion": "example.com/v1", "kind": "Odd", **obj})
    assert list(found) == ["Name", "Age"]
    assert found["Age"] == "<unknown>"
