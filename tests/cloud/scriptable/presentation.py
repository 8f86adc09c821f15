"""Objects, lists, events and errors as bytes: JSON and protobuf, complete objects or metadata only."""

from __future__ import annotations

import orjson

from kube.errors import StatusError, not_acceptable
from kube.json_type import Json
from kube.wire.encoding import Encoding
from kube.wire.negotiation import Representation, acceptable
from tests.cloud.scriptable import wire
from tests.cloud.scriptable.conversion import from_storage
from tests.cloud.scriptable.lists import Page
from tests.cloud.scriptable.protobuf import encode_message, encode_metadata
from tests.cloud.scriptable.resources import Resource, Trait
from tests.cloud.scriptable.storage import Stored
from tests.cloud.scriptable.watch import Event

META = "meta.k8s.io/v1"
PARTIAL = "PartialObjectMetadata"
END_OF_INITIAL_EVENTS = {"k8s.io/initial-events-end": "true"}


class Presentation:
    """The form of a resource's objects in the response to a request."""

    def __init__(self, resource: Resource, representation: Representation) -> None:
        self._resource = resource
        self._kind = representation.kind.removesuffix("List")
        self._encoding = representation.encoding

    @property
    def content_type(self) -> str:
        return str(self._encoding)

    @property
    def watch_content_type(self) -> str:
        return f"{self._encoding};stream=watch" if self._protobuf else str(self._encoding)

    def single(self, value: Json) -> bytes:
        """Encode an object given as JSON in the resource's version."""
        api_version, kind = (META, PARTIAL) if self._kind == PARTIAL else (value["apiVersion"], value["kind"])
        if self._protobuf:
            return wire.envelope(api_version, kind, self._message(value))
        if self._kind == PARTIAL:
            value = {"metadata": value["metadata"]}
        return self._json(
            {"kind": kind, "apiVersion": api_version} | value | {"apiVersion": api_version, "kind": kind}
        )

    def answer(self, value: Json) -> tuple[bytes, str]:
        """Encode the response to a write, with its media type: the object or a Status as requested, all else as
        JSON."""
        if value["kind"] == self._resource.kind:
            return self.single(value), self.content_type
        if value["kind"] == "Status" and self._protobuf:
            return wire.envelope("v1", "Status", wire.status_message(value)), self.content_type
        return self._json(value), str(Encoding.JSON)

    def stored(self, stored: Stored) -> bytes:
        return self.single(from_storage(self._resource, stored.value))

    def page(self, page: Page) -> bytes:
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
        api_version, kind = self._list_type()
        items = [orjson.Fragment(self._item(stored)) for stored in page.items]
        return self._json({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})

    def event(self, event: Event) -> bytes:
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
        return encode_status(error, self._encoding)

    @property
    def _protobuf(self) -> bool:
        return self._encoding is Encoding.PROTOBUF

    def _message(self, value: Json) -> bytes:
        if self._kind == PARTIAL:
            return wire.block(1, encode_metadata(value["metadata"]))
        return encode_message(value)

    def _item(self, stored: Stored) -> bytes:
        """Return an item of a list, which is encoded once for all lists in this form."""
        form = f"{self._encoding} {self._resource.api_version} {self._kind}"
        if form not in stored.encoded:
            value = from_storage(self._resource, stored.value)
            stored.encoded[form] = self._message(value) if self._protobuf else self._json_item(value)
        return stored.encoded[form]

    def _json_item(self, value: Json) -> bytes:
        """Encode an item: items of built-in kinds have no kind and version, all others have both."""
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

    def _frame(self, event_type: str, body: bytes) -> bytes:
        if self._protobuf:
            return wire.frame(event_type, body)
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), body.rstrip(b"\n"))

    def _json(self, value: object) -> bytes:
        """Encode in the field order of Go's types. A custom resource has none, so the server sorts its fields."""
        is_sorted = Trait.CUSTOM in self._resource.traits and not self._kind
        return encode_json(value, is_sorted=is_sorted)


def encode_json(value: object, *, is_sorted: bool = False) -> bytes:
    """Encode as kube-apiserver does, with a final newline."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | (orjson.OPT_SORT_KEYS if is_sorted else 0))


def encode_status(error: StatusError, encoding: Encoding) -> bytes:
    """Encode the body of an error."""
    if encoding is Encoding.PROTOBUF:
        return wire.envelope("v1", "Status", wire.status_message(error.to_dict()))
    return encode_json(error.to_dict())


def negotiate(
    accept: str | None, *, protobuf: bool = True, kinds: frozenset[str] = frozenset()
) -> Representation:
    """Return the first representation that the client accepts and the server has: plain or one of `kinds`, JSON or
    offered protobuf. Raises StatusError 406, and 400 like `acceptable`."""
    for representation in acceptable(accept):
        offered = protobuf or representation.encoding is Encoding.JSON
        if offered and (not representation.kind or representation.kind in kinds):
            return representation
    offer = ", ".join(Encoding) if protobuf else Encoding.JSON.value
    raise not_acceptable(f"only the following media types are accepted: {offer}")
