"""A view's objects as a list, and the form in which a view writes objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kube.packed_text import StoredText
from kube.requests.continue_tokens import ContinueToken, key_text
from kube.store.store import Item
from kube.wire.codec import Codec
from kube.wire.codec_base import META_GROUP, NO_REST, ListBody, Rest
from kube.wire.negotiation import META_VERSIONS


class Form:
    """How a view writes objects: whole, or as PartialObjectMetadata; `kube.store.made_forms` has further ones."""

    at_once = 1000
    """Objects that are made ready for a list at once."""
    is_headed = False
    """Whether `headed` adds something to the first event of a watch."""

    def __init__(self, *, metadata_only: bool, version: str = "v1") -> None:
        """`version` is that of PartialObjectMetadata."""
        self.metadata_only = metadata_only
        self.version = version
        self.name = "metadata" if metadata_only else "whole"

    def codec(self, of_store: Codec) -> Codec:
        """The codec in which the form writes the objects of a store that has them in `of_store`."""
        return of_store

    def type_of(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        return (
            (f"{META_GROUP}/{self.version}", "PartialObjectMetadata")
            if self.metadata_only
            else (item_api_version, item_kind)
        )

    def listed_type(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        """apiVersion and kind of the items of a list, as `Listing` has them."""
        return self.type_of(item_api_version, item_kind)

    def raw(self, codec: Codec, item: Item) -> bytes:
        return bytes(self.stored(codec, item))

    def stored(self, codec: Codec, item: Item) -> StoredText:
        """The object in this form. It stays packed where the item is."""
        return codec.metadata_only(item.raw, self.version) if self.metadata_only else item.stored

    def listed(self, codec: Codec, item: Item) -> StoredText:
        """An object as `body` takes it."""
        return self.stored(codec, item)

    def event(self, codec: Codec, item: Item) -> bytes:
        """An object as an event of a watch has it."""
        return self.raw(codec, item)

    def bookmark(
        self, codec: Codec, api_version: str, kind: str, version: int, annotations: Mapping[str, str]
    ) -> bytes:
        """A bookmark in a watch of objects of this type."""
        return codec.encode_bookmark(*self.type_of(api_version, kind), version, annotations)

    def headed(self, first: bytes, api_version: str, kind: str) -> bytes:
        """The first events of a watch, with fields that only these have, such as the columns of a Table."""
        return first

    def body(self, listing: Listing, listed: Sequence[StoredText]) -> ListBody:
        """The body of a list, from the results of `listed` for its objects."""
        return listing.codec.encode_list(
            listing.api_version, listing.kind, listing.version, listed, listing.rest
        )


class Listing(NamedTuple):
    """The objects of a list at one version, in the order of their keys. Later changes of the store do not reach it.

    `codec` is that of the list, `api_version` and `kind` are those of its items.
    """

    codec: Codec
    api_version: str
    kind: str
    version: int
    items: list[Item]
    form: Form
    rest: Rest = NO_REST

    def page(self, start: str, limit: int, namespace: str) -> Listing:
        """The objects from a key on, `limit` of them at most (0: all). Keys begin behind `namespace`, "" for none."""
        begin = bisect_left(self.items, start, key=lambda item: _key(item, namespace)) if start else 0
        items = self.items[begin : begin + limit] if limit else self.items[begin:]
        remaining = len(self.items) - begin - len(items)
        if not remaining:
            return self._replace(items=items)
        token = ContinueToken(self.version, _key(items[-1], namespace) + "\0").encode()
        return self._replace(items=items, rest=Rest(token, remaining))

    def formed(self, items: Iterable[Item]) -> list[StoredText]:
        """Some of the items in the form of the list. For a metadata list, each item is parsed."""
        listed, codec = self.form.listed, self.codec
        return [listed(codec, item) for item in items]

    def body(self, formed: Sequence[StoredText]) -> ListBody:
        """The body of the complete list, from the results of `formed` for all items.

        Packed items are unpacked piece by piece, as the body is read.
        """
        return self.form.body(self, formed)


def _key(item: Item, namespace: str) -> str:
    return item.key[1] if namespace else key_text(item.key)


FULL_OBJECTS = Form(metadata_only=False)
METADATA = {version: Form(metadata_only=True, version=version) for version in META_VERSIONS}
"""By the version of PartialObjectMetadata."""
