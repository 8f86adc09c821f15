"""Cells from the cloud's own Tables, for kinds whose columns the hub does not know, mostly custom resources."""

from __future__ import annotations

from typing import Any

from kube.bounds import reached
from kube.json_type import Json
from kube.tables.server_table import TABLE
from kube.wire.json_fields import parse_object

UNKNOWN = "<unknown>"
"""A cell that the cloud has not sent."""
MAX_TABLE = 4 * 1024 * 1024
"""The most bytes of the cloud's Table, some 4,000 objects. For a longer one, clients get only name and age."""


class CloudCells:
    """The columns, and the cells of each object by its version. Without columns, the hub makes the cells itself."""

    def __init__(self) -> None:
        self.columns: list[Json] = []
        self._cells: dict[tuple[str, str], tuple[str, list[Any]]] = {}

    def learn(self, body: bytes) -> None:
        """Take the cells from a Table of the cloud that has each object's metadata. ValueError for any other body."""
        if len(body) > MAX_TABLE:
            reached("a Table of the cloud")
            raise ValueError(f"a Table of more than {MAX_TABLE} bytes")
        try:
            table: Json = parse_object(body)
            if table["kind"] != TABLE[1]:
                raise ValueError(f"the cloud makes no Table of this kind, but {table['kind']}")
            rows = {
                _key(row["object"]): (row["object"]["metadata"]["resourceVersion"], list(row["cells"]))
                for row in table["rows"] or ()
            }
            columns = list(table["columnDefinitions"])
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"no Table: {error!r}") from None
        if not all(len(cells) == len(columns) for _, cells in rows.values()):
            raise ValueError("a Table whose rows do not have its columns")
        self.columns = columns
        self._cells |= rows

    def has(self, obj: Json) -> bool:
        """True if the stored cells are of the object's version."""
        version, _ = self._cells.get(_key(obj), ("", []))
        return bool(version) and version == obj["metadata"].get("resourceVersion")

    def forget(self, obj: Json) -> None:
        """Drop the cells of an object that is no longer shown."""
        self._cells.pop(_key(obj), None)

    def of(self, obj: Json, known: list[Any]) -> list[Any]:
        """The cells of an object: the last ones that the cloud sent, else `known` (name and age) in matching
        columns."""
        if not self.columns:
            return known
        _, cells = self._cells.get(_key(obj), ("", []))
        if len(cells) == len(self.columns):
            return cells
        name, age = known
        by_name = {"Name": name, "Age": age}
        return [by_name.get(column.get("name", ""), UNKNOWN) for column in self.columns]


def _key(obj: Json) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata.get("name", "")
