"""Objects, lists, events and errors as bytes: JSON and protobuf, whole objects, metadata only, and tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import orjson

from kube.errors import StatusError
from kube.json_type import Json
from kube.wire.encoding import Encoding
from kube.wire.negotiation import Representation
from tests.cloud.scriptable import wire
from tests.cloud.scriptable.conversion import from_storage
from tests.cloud.scriptable.lists import Page
from tests.cloud.scriptable.protobuf import encode_message, encode_metadata
from tests.cloud.scriptable.resources import Resource, Trait
from tests.cloud.scriptable.storage import Stored
from tests.cloud.scriptable.watch import Event

META = "meta.k8s.io/v1"
PARTIAL = "PartialObjectMetadata"
TABLE = "Table"
END_OF_INITIAL_EVENTS = {"k8s.io/initial-events-end": "true"}

COLUMNS = (
    {"name": "Name", "type": "string", "format": "name", "description": "Name of the object.", "priority": 0},
    {
        "name": "Age",
        "type": "string",
        "format": "",
        "description": "Time since it was created.",
        "priority": 0,
    },
)
"""Of every table: what a real server shows of kinds that it knows nothing special of."""


class Presentation:
    """How one request wants the objects of one resource. `include_object` is a table's: None, Metadata or Object."""

    def __init__(
        self,
        resource: Resource,
        representation: Representation,
        *,
        pretty: bool = False,
        include_object: str = "Metadata",
    ) -> None:
        self._resource = resource
        self._kind = representation.kind.removesuffix("List")
        self._encoding = representation.encoding
        self._pretty = pretty
        self._include_object = include_object

    @property
    def content_type(self) -> str:
        return str(self._encoding)

    @property
    def watch_content_type(self) -> str:
        return f"{self._encoding};stream=watch" if self._protobuf else str(self._encoding)

    def single(self, value: Json) -> bytes:
        """One object, given as JSON in the resource's version."""
        if self._kind == TABLE:
            metadata = {"resourceVersion": value["metadata"].get("resourceVersion", "")}
            return self._json(self._table([value], metadata))
        api_version, kind = (META, PARTIAL) if self._kind == PARTIAL else (value["apiVersion"], value["kind"])
        if self._protobuf:
            return wire.envelope(api_version, kind, self._message(value))
        if self._kind == PARTIAL:
            value = {"metadata": value["metadata"]}
        return self._json(
            {"kind": kind, "apiVersion": api_version} | value | {"apiVersion": api_version, "kind": kind}
        )

    def answer(self, value: Json) -> tuple[bytes, str]:
        """What a write answers, with its media type: the object or a Status as asked for, all else as JSON."""
        if value["kind"] == self._resource.kind:
            return self.single(value), self.content_type
        if value["kind"] == "Status" and self._protobuf:
            return wire.envelope("v1", "Status", wire.status_message(value)), self.content_type
        return self._json(value), str(Encoding.JSON)

    def stored(self, stored: Stored) -> bytes:
        """One object as it is stored."""
        return self.single(from_storage(self._resource, stored.value))

    def page(self, page: Page) -> bytes:
        """A list, or a part of one."""
        if self._protobuf:
            message = wire.list_message(
                page.version, map(self._item, page.items), page.continue_token, page.remaining
            )
            return wire.envelope(*self._list_type(), message)
        metadata: Json = {"resourceVersion": str(page.version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self._kind == TABLE:
            values = [from_storage(self._resource, stored.value) for stored in page.items]
            return self._json(self._table(values, metadata))
        api_version, kind = self._list_type()
        items = [orjson.Fragment(self._item(stored)) for stored in page.items]
        return self._json({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})

    def event(self, event: Event) -> bytes:
        """One frame of a watch."""
        if event.status is not None:
            return self._frame(event.type, self.status(event.status))
        if event.stored is not None:
            return self._frame(event.type, self.stored(event.stored))
        metadata: Json = {"resourceVersion": str(event.version)}
        if event.initial_end:
            metadata["annotations"] = END_OF_INITIAL_EVENTS
        value = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return self._frame(event.type, self.single(value))

    def status(self, error: StatusError) -> bytes:
        return encode_status(error, self._encoding, pretty=self._pretty)

    @property
    def _protobuf(self) -> bool:
        return self._encoding is Encoding.PROTOBUF

    def _message(self, value: Json) -> bytes:
        """The bare message of an object."""
        if self._kind == PARTIAL:
            return wire.block(1, encode_metadata(value["metadata"]))
        return encode_message(value)

    def _item(self, stored: Stored) -> bytes:
        """An item of a list, which is encoded once for all lists in this form."""
        form = f"{self._encoding} {self._resource.api_version} {self._kind}"
        if form not in stored.encoded:
            value = from_storage(self._resource, stored.value)
            stored.encoded[form] = self._message(value) if self._protobuf else self._json_item(value)
        return stored.encoded[form]

    def _json_item(self, value: Json) -> bytes:
        """Items of built-in kinds do not say what they are, all others do."""
        if self._kind == PARTIAL:
            return orjson.dumps({"kind": PARTIAL, "apiVersion": META, "metadata": value["metadata"]})
        if Trait.CUSTOM in self._resource.traits:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(
            {name: field for name, field in value.items() if name not in {"apiVersion", "kind"}}
        )

    def _list_type(self) -> tuple[str, str]:
        if self._kind == PARTIAL:
            return META, f"{PARTIAL}List"
        return self._resource.api_version, f"{self._resource.kind}List"

    def _table(self, values: list[Json], metadata: Json) -> Json:
        rows = []
        for value in values:
            row: Json = {"cells": [value["metadata"].get("name", ""), _age(value)]}
            if self._include_object == "Object":
                row["object"] = value
            elif self._include_object != "None":
                row["object"] = {"kind": PARTIAL, "apiVersion": META, "metadata": value["metadata"]}
            rows.append(row)
        return {
            "kind": TABLE,
            "apiVersion": META,
            "metadata": metadata,
            "columnDefinitions": COLUMNS,
            "rows": rows,
        }

    def _frame(self, event_type: str, body: bytes) -> bytes:
        if self._protobuf:
            return wire.frame(event_type, body)
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), body.rstrip(b"\n"))

    def _json(self, value: object) -> bytes:
        """In the order of Go's types. A custom resource has none: the server sorts its fields."""
        is_sorted = Trait.CUSTOM in self._resource.traits and not self._kind
        return encode_json(value, pretty=self._pretty, is_sorted=is_sorted)


def encode_json(value: object, *, pretty: bool = False, is_sorted: bool = False) -> bytes:
    """As a kube-apiserver: newline-terminated, or indented for people with a browser or curl."""
    order = orjson.OPT_SORT_KEYS if is_sorted else 0
    if not pretty:
        return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | order)
    return json.dumps(json.loads(orjson.dumps(value, option=order)), indent=2, ensure_ascii=False).encode()


def encode_status(error: StatusError, encoding: Encoding, *, pretty: bool = False) -> bytes:
    """An error's body."""
    if encoding is Encoding.PROTOBUF:
        return wire.envelope("v1", "Status", wire.status_message(error.to_dict()))
    return encode_json(error.to_dict(), pretty=pretty)


def _age(value: Json) -> str:
    """In the unit that kubectl's eye expects first."""
    created = value["metadata"].get("creationTimestamp")
    if not created:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{max(seconds, 0)}s"
