"""A view's objects as a list, and the form in which a view encodes objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kube.packed_text import StoredText
from kube.requests.continue_tokens import ContinueToken, key_text
from kube.store.store import Item
from kube.wire.codec import Codec
from kube.wire.codec_base import META_GROUP, ListBody, ListMeta
from kube.wire.negotiation import META_VERSIONS


class Form:
    """How a view encodes objects: in full, or as PartialObjectMetadata; `kube.store.made_forms` has further forms."""

    batch_size = 1000
    """The number of objects that are encoded for a list before other tasks run."""
    is_headed = False
    """True if `headed` adds something to the first event of a watch."""

    def __init__(self, *, metadata_only: bool, version: str = "v1") -> None:
        """Set `version`, that of PartialObjectMetadata."""
        self.metadata_only = metadata_only
        self.version = version
        self.name = "metadata" if metadata_only else "whole"

    def codec(self, of_store: Codec) -> Codec:
        """The codec in which the form encodes the objects of a store with the codec `of_store`."""
        return of_store

    def type_of(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        return (
            (f"{META_GROUP}/{self.version}", "PartialObjectMetadata")
            if self.metadata_only
            else (item_api_version, item_kind)
        )

    def listed_type(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        """The apiVersion and kind of a list's items in this form, from those of the `Listing`."""
        return self.type_of(item_api_version, item_kind)

    def raw(self, codec: Codec, item: Item) -> bytes:
        return bytes(self.stored(codec, item))

    def stored(self, codec: Codec, item: Item) -> StoredText:
        """Encode the object in this form. It stays compressed if the item is."""
        return codec.metadata_only(item.raw, self.version) if self.metadata_only else item.stored

    def listed(self, codec: Codec, item: Item) -> StoredText:
        """Encode an object for `body`."""
        return self.stored(codec, item)

    def event(self, codec: Codec, item: Item) -> bytes:
        """Encode an object for an event of a watch."""
        return self.raw(codec, item)

    def bookmark(
        self, codec: Codec, api_version: str, kind: str, version: int, annotations: Mapping[str, str]
    ) -> bytes:
        """Encode a bookmark in a watch of objects of this type."""
        return codec.encode_bookmark(*self.type_of(api_version, kind), version, annotations)

    def headed(self, first: bytes, api_version: str, kind: str) -> bytes:
        """Add to the first events of a watch the fields that only these have, such as the columns of a Table."""
        return first

    def body(self, listing: Listing, listed: Sequence[StoredText]) -> ListBody:
        """Build the body of a list from the results of `listed`."""
        return listing.codec.encode_list(listing.api_version, listing.kind, listing.meta, listed)


class Listing(NamedTuple):
    """The objects of a list at one version, in key order. Later changes of the store do not affect it.

    `codec` is the list's, `api_version` and `kind` are its items'.
    """

    codec: Codec
    api_version: str
    kind: str
    meta: ListMeta
    items: list[Item]
    form: Form

    def page(self, start: str, limit: int, namespace: str) -> Listing:
        """The objects from a key on, at most `limit` (0: all). Keys are relative to `namespace`, "" for none."""
        begin = bisect_left(self.items, start, key=lambda item: _key(item, namespace)) if start else 0
        items = self.items[begin : begin + limit] if limit else self.items[begin:]
        remaining = len(self.items) - begin - len(items)
        if not remaining:
            return self._replace(items=items)
        token = ContinueToken(self.meta.version, _key(items[-1], namespace) + "\0").encode()
        return self._replace(items=items, meta=ListMeta(self.meta.version, token, remaining))

    def formed(self, items: Iterable[Item]) -> list[StoredText]:
        """Encode some of the items in the form of the list. A metadata list parses each item."""
        listed, codec = self.form.listed, self.codec
        return [listed(codec, item) for item in items]

    def body(self, formed: Sequence[StoredText]) -> ListBody:
        """Build the body of the complete list from the results of `formed`.

        Compressed items are decompressed piece by piece, as the body is read.
        """
        return self.form.body(self, formed)


def _key(item: Item, namespace: str) -> str:
    return item.key[1] if namespace else key_text(item.key)


FULL_OBJECTS = Form(metadata_only=False)
METADATA = {version: Form(metadata_only=True, version=version) for version in META_VERSIONS}
"""The metadata forms, by the version of PartialObjectMetadata."""
