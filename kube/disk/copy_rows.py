"""The rows of a source's copy on disk: one for each object, and one (the meta) with its description and object
count."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from kube.disk.database import Batch, Disk, TableChanges
from kube.disk.rows import join

METAS = "m"
"""The table that has the meta of each copy, by name."""
COUNT = "count"
"""The field of a meta with the number of objects. If the count differs, the copy is damaged."""

logger = logging.getLogger(__name__)

Key = tuple[str, str]
Meta = dict[str, Any]


def objects_of(name: str) -> str:
    """The table of a copy's objects. `object_name` makes the names of its rows."""
    return join("o", name)


def object_name(key: Key) -> str:
    return join(*key)


def copy_batch(name: str, meta: Meta, objects: TableChanges) -> Batch:
    """The batch that changes a copy. `meta` must have the number of objects after the change."""
    return {objects_of(name): objects, METAS: TableChanges({name: _meta_row(meta)})}


def mark_copies(disk: Disk, names: Iterable[str], key: str) -> Batch:
    """Set a key in the metas of those copies that the disk has; return the batch that was written."""
    metas = {name: parsed_meta(disk.value(METAS, name)) for name in names}
    rows = {name: _meta_row({**meta, key: True}) for name, meta in metas.items() if meta is not None}
    batch = {METAS: TableChanges(rows)}
    disk.write(batch)
    return batch


def _meta_row(meta: Meta) -> bytes:
    return orjson.dumps([meta[COUNT], meta])


def dropped_copy(name: str) -> Batch:
    """The batch that deletes a copy."""
    return {objects_of(name): TableChanges({}, replaces_all=True), METAS: TableChanges({name: None})}


def parsed_meta(row: bytes | None) -> Meta | None:
    """Parse the meta in a row; None if the row is damaged."""
    if row is None:
        return None
    count, meta = orjson.loads(row)
    return {**meta, COUNT: count} if isinstance(meta, dict) else None


def read_metas(rows: Mapping[str, bytes | None]) -> dict[str, Meta]:
    """Parse the undamaged metas among a table's rows, by the names of their copies."""
    return {name: meta for name, row in rows.items() if (meta := parsed_meta(row)) is not None}


def read_copy(disk: Disk, name: str) -> tuple[Meta, list[bytes]] | None:
    """Read the meta and the objects of a copy; None if a row is missing or damaged."""
    meta = parsed_meta(disk.value(METAS, name))
    if meta is None:
        return None
    objects = [raw for raw in disk.rows(objects_of(name)).values() if raw is not None]
    if len(objects) != meta[COUNT]:
        logger.error("the copy %s in %s is damaged; it is fetched anew", name, disk.folder)
        return None
    return meta, objects
