"""Forms that the hub computes from a store's objects: the other encoding, and Tables.

A Table is JSON. Each event of a watch is a Table with one row, as from kube-apiserver: only the first event has the
columns, and a bookmark has the row of an empty object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube.bounds import reached
from kube.json_type import Json
from kube.packed_text import StoredText
from kube.schemas.json_objects import is_known, json_object
from kube.schemas.recoded import recoded
from kube.store.listing import FULL_OBJECTS, METADATA, Form, Listing
from kube.store.store import Item, Store
from kube.tables.cloud_cells import CloudCells
from kube.tables.server_table import OBJECTS, TABLE, list_metadata, row, table
from kube.wire.codec import Codec, codec_for
from kube.wire.codec_base import ListBody, write_version
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_codec import page_metadata
from kube.wire.json_fields import parse_object, write_json
from kube.wire.negotiation import (
    META_VERSIONS,
    METADATA_KIND,
    METADATA_LIST_KIND,
    TABLE_KIND,
    Representation,
)

_JSON = codec_for(Encoding.JSON)
_COLUMNS = b'"columnDefinitions":'
_NO_COLUMNS = _COLUMNS + b"null"


class RecodedForm(Form):
    """The objects in one encoding, whatever the store's encoding is."""

    batch_size = 20
    """Few, because a protobuf object takes up to some milliseconds."""

    def __init__(self, encoding: Encoding, *, metadata_only: bool, version: str = "v1") -> None:
        super().__init__(metadata_only=metadata_only, version=version)
        self.name = f"{self.name} as {encoding.name}"
        self._codec = codec_for(encoding)

    def codec(self, of_store: Codec) -> Codec:
        return self._codec

    def stored(self, codec: Codec, item: Item) -> StoredText:
        store = item.store
        if store.codec is self._codec:
            return super().stored(codec, item)
        try:
            raw = super().stored(store.codec, item)
            obj = Encoded(store.codec, *self.type_of(store.api_version, store.kind), bytes(raw))
            return recoded(obj, self._codec.encoding).raw
        except (ValueError, LookupError):
            obj = Encoded(_JSON, *self.type_of(store.api_version, store.kind), write_json(_named(item)))
            return recoded(obj, self._codec.encoding).raw


class TableForm(Form):
    """The objects as rows of a Table."""

    batch_size = 20
    is_headed = True

    def __init__(self, include: str, version: str = "v1", cells: CloudCells | None = None) -> None:
        """Set `include`, the object that each row has beside its cells: one of `kube.tables.server_table.OBJECTS`.

        `cells` are the cloud's, for a kind whose columns the hub does not know.
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

    def stored(self, codec: Codec, item: Item) -> StoredText:
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
        # The row's object carries version and annotations of a bookmark, so the row needs at least metadata.
        form = self if self._include != "None" else TableForm("Metadata", self._version, self._cells)
        return codec.encode_event("BOOKMARK", *TABLE, form.event_of(empty, api_version, kind))

    def event_of(self, obj: Json, api_version: str, kind: str) -> bytes:
        """Encode an event as `event` does, from parsed JSON."""
        made = self._table([self._row(obj, api_version, kind)], api_version, kind, list_metadata(obj))
        return write_json(made | {"columnDefinitions": None})

    def _table(self, rows: list[Json], api_version: str, kind: str, metadata: Json) -> Json:
        made = table([], api_version, kind, metadata, self._include, self._version)
        if self._cells is not None and self._cells.columns:
            made["columnDefinitions"] = self._cells.columns
        return {**made, "rows": rows}

    def headed(self, first: bytes, api_version: str, kind: str) -> bytes:
        columns = self._table([], api_version, kind, {})["columnDefinitions"]
        # A Table's columns come before its rows, so the first match is not inside an object.
        return first.replace(_NO_COLUMNS, _COLUMNS + write_json(columns), 1)

    def listed(self, codec: Codec, item: Item) -> StoredText:
        return write_json(self._row(plain(item), item.store.api_version, item.store.kind))

    def _row(self, obj: Json, api_version: str, kind: str) -> Json:
        made = row(obj, api_version, kind, self._include, self._version)
        return made if self._cells is None else {**made, "cells": self._cells.of(obj, made["cells"])}

    def body(self, listing: Listing, listed: Sequence[StoredText]) -> ListBody:
        metadata = page_metadata(listing.meta)
        empty = write_json(self._table([], listing.api_version, listing.kind, metadata))
        head, tail = empty.removesuffix(b"]}"), b"]}\n"
        size = len(head) + sum(map(len, listed)) + max(len(listed) - 1, 0) + len(tail)
        return ListBody(head, listed, tail, size, b",".join, b",")


def plain(item: Item) -> Json:
    """An object as parsed JSON. An unreadable one has only name and version, so that the list does not fail."""
    store = item.store
    try:
        if store.codec is _JSON:
            return parse_object(item.raw)
        return json_object(store.api_version, store.kind, item.raw)
    except (ValueError, LookupError):
        return _named(item)


def field_of(tree: Json) -> Callable[[str], str]:
    """Return a function that reads an object's fields by JSON path, as kube-apiserver's field selectors name them."""

    def value(path: str) -> str:
        field: Any = tree
        for name in path.split("."):
            field = field.get(name) if isinstance(field, dict) else None
        return "" if field is None else str(field)

    return value


def _named(item: Item) -> Json:
    reached("an object that cannot be converted")
    namespace, name = item.key
    metadata = {"namespace": namespace, "name": name, "resourceVersion": write_version(item.version)}
    return {"kind": item.store.kind, "apiVersion": item.store.api_version, "metadata": metadata}


def form_of(wanted: Representation, store: Store, *, is_list: bool, include: str) -> Form | None:
    """The form for a representation of a store's objects; None if there is none.

    `include` is the object that a Table's rows have beside their cells.
    """
    is_same = wanted.encoding is store.codec.encoding
    if wanted.kind == TABLE_KIND:
        is_made = is_same or is_known(store.api_version, store.kind)
        return TABLES[wanted.version, include] if is_made else None
    if wanted.kind:
        if wanted.kind != (METADATA_LIST_KIND if is_list else METADATA_KIND):
            return None
        return METADATA[wanted.version] if is_same else RECODED_METADATA[wanted.encoding, wanted.version]
    if is_same:
        return FULL_OBJECTS
    return RECODED[wanted.encoding] if is_known(store.api_version, store.kind) else None


RECODED = {encoding: RecodedForm(encoding, metadata_only=False) for encoding in Encoding}
RECODED_METADATA = {
    (encoding, version): RecodedForm(encoding, metadata_only=True, version=version)
    for encoding in Encoding
    for version in META_VERSIONS
}
"""Metadata forms by encoding and version of PartialObjectMetadata."""
TABLES = {(version, include): TableForm(include, version) for version in META_VERSIONS for include in OBJECTS}
"""Tables by their version and `include`."""
