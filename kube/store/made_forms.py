"""Forms that the hub makes of the objects of a store for people's programs: JSON of protobuf, and Tables.

A Table is JSON. Each event of a watch is a Table with one row, as from kube-apiserver: the first event alone has the
columns, and a bookmark has the row of an empty object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube.bounds import reached
from kube.json_type import Json
from kube.packed_text import Kept
from kube.schemas.json_objects import json_object
from kube.store.listing import Form, Listing
from kube.store.store import Item
from kube.tables.cloud_cells import CloudCells
from kube.tables.server_table import OBJECTS, TABLE, list_metadata, row, table
from kube.wire.codec import Codec, codec_for
from kube.wire.codec_base import ListBody, write_version
from kube.wire.encoding import Encoding
from kube.wire.json_codec import page_metadata
from kube.wire.json_fields import parse_object, write_json
from kube.wire.negotiation import META_VERSIONS

_JSON = codec_for(Encoding.JSON)
_COLUMNS = b'"columnDefinitions":'
_NO_COLUMNS = _COLUMNS + b"null"


class JsonForm(Form):
    """As JSON, in whichever encoding a store has the objects."""

    at_once = 20
    """An object of protobuf takes up to some milliseconds."""

    def __init__(self, *, metadata_only: bool) -> None:
        super().__init__(metadata_only=metadata_only)
        self.name = f"{self.name} as JSON"

    def codec(self, of_store: Codec) -> Codec:
        return _JSON

    def kept(self, codec: Codec, item: Item) -> Kept:
        if item.store.codec is _JSON:
            return super().kept(_JSON, item)
        raw = write_json(plain(item))
        return _JSON.metadata_only(raw) if self.metadata_only else raw


class TableForm(Form):
    """As rows of a Table."""

    at_once = 20
    is_headed = True

    def __init__(self, include: str, version: str = "v1", cells: CloudCells | None = None) -> None:
        """`include` says what a row has beside its cells: one of `kube.tables.server_table.OBJECTS`.

        `cells` are those that the cloud prints of a kind whose columns the hub does not know.
        """
        super().__init__(metadata_only=False)
        self.name = f"Table {version} with {include}"
        self._include = include
        self._version = version
        self._cells = cells

    def codec(self, of_store: Codec) -> Codec:
        return _JSON

    def type_of(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        return TABLE

    def listed_type(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        return item_api_version, item_kind

    def kept(self, codec: Codec, item: Item) -> Kept:
        rows = [self._row(plain(item), item.store.api_version, item.store.kind)]
        metadata = {"resourceVersion": write_version(item.version)}
        return write_json(self._table(rows, item.store.api_version, item.store.kind, metadata))

    def event(self, codec: Codec, item: Item) -> bytes:
        return self.event_of(plain(item), item.store.api_version, item.store.kind)

    def bookmark(
        self, codec: Codec, api_version: str, kind: str, version: int, annotations: Mapping[str, str]
    ) -> bytes:
        metadata: Json = {"resourceVersion": write_version(version)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        empty = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        # Its version and annotations are in the row's object, without which it would say nothing.
        form = self if self._include != "None" else TableForm("Metadata", self._version, self._cells)
        return codec.encode_event("BOOKMARK", *TABLE, form.event_of(empty, api_version, kind))

    def event_of(self, obj: Json, api_version: str, kind: str) -> bytes:
        """As `event`, of an object as the values of its JSON."""
        made = self._table([self._row(obj, api_version, kind)], api_version, kind, list_metadata(obj))
        return write_json(made | {"columnDefinitions": None})

    def _table(self, rows: list[Json], api_version: str, kind: str, metadata: Json) -> Json:
        made = table([], api_version, kind, metadata, self._include, self._version)
        if self._cells is not None and self._cells.columns:
            made["columnDefinitions"] = self._cells.columns
        return {**made, "rows": rows}

    def headed(self, first: bytes, api_version: str, kind: str) -> bytes:
        columns = self._table([], api_version, kind, {})["columnDefinitions"]
        # A Table's columns come before its rows, so before all that is an object's own.
        return first.replace(_NO_COLUMNS, _COLUMNS + write_json(columns), 1)

    def listed(self, codec: Codec, item: Item) -> Kept:
        return write_json(self._row(plain(item), item.store.api_version, item.store.kind))

    def _row(self, obj: Json, api_version: str, kind: str) -> Json:
        made = row(obj, api_version, kind, self._include, self._version)
        return made if self._cells is None else {**made, "cells": self._cells.of(obj, made["cells"])}

    def body(self, listing: Listing, listed: Sequence[Kept]) -> ListBody:
        metadata = page_metadata(listing.version, listing.rest)
        empty = write_json(self._table([], listing.api_version, listing.kind, metadata))
        head, tail = empty.removesuffix(b"]}"), b"]}\n"
        size = len(head) + sum(map(len, listed)) + max(len(listed) - 1, 0) + len(tail)
        return ListBody(head, listed, tail, size, b",".join, b",")


def plain(item: Item) -> Json:
    """An object as the values of its JSON. What cannot be read has its name and version alone: others need the list."""
    store = item.store
    try:
        if store.codec is _JSON:
            return parse_object(item.raw)
        return json_object(store.api_version, store.kind, item.raw)
    except (ValueError, LookupError):
        reached("an object that cannot be made JSON")
        namespace, name = item.key
        metadata = {"namespace": namespace, "name": name, "resourceVersion": write_version(item.version)}
        return {"kind": store.kind, "apiVersion": store.api_version, "metadata": metadata}


AS_JSON = JsonForm(metadata_only=False)
METADATA_AS_JSON = JsonForm(metadata_only=True)
TABLES = {(version, include): TableForm(include, version) for version in META_VERSIONS for include in OBJECTS}
"""By the version of the Table, and by what its rows have beside their cells."""
