"""A view's objects as a list, and the form in which a view writes objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kube.packed_text import Kept
from kube.requests.continue_tokens import ContinueToken
from kube.store.store import Item, key_text
from kube.wire.codec import Codec
from kube.wire.codec_base import NO_REST, ListBody, Rest


class Form:
    """How a view writes objects: whole, or as PartialObjectMetadata."""

    def __init__(self, *, metadata_only: bool) -> None:
        self.metadata_only = metadata_only
        self.name = "metadata" if metadata_only else "whole"

    def type_of(self, item_api_version: str, item_kind: str) -> tuple[str, str]:
        return (
            ("meta.k8s.io/v1", "PartialObjectMetadata")
            if self.metadata_only
            else (item_api_version, item_kind)
        )

    def raw(self, codec: Codec, item: Item) -> bytes:
        return bytes(self.kept(codec, item))

    def kept(self, codec: Codec, item: Item) -> Kept:
        """As `raw`, packed where the item is kept so."""
        return codec.metadata_only(item.raw) if self.metadata_only else item.kept


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a list at one version, in the order of their keys. Later changes of the store do not reach it."""

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
            return replace(self, items=items)
        token = ContinueToken(self.version, _key(items[-1], namespace) + "\0").encode()
        return replace(self, items=items, rest=Rest(token, remaining))

    def formed(self, items: Iterable[Item]) -> list[Kept]:
        """Some of the items in the form of the list. For a metadata list, each item is parsed."""
        return [self.form.kept(self.codec, item) for item in items]

    def body(self, formed: Sequence[Kept]) -> ListBody:
        """The body of the whole list, from the results of `formed` for all items.

        What the items keep packed is unpacked piece by piece, as the body is read.
        """
        return self.codec.encode_list(self.api_version, self.kind, self.version, formed, self.rest)


def _key(item: Item, namespace: str) -> str:
    return item.key[1] if namespace else key_text(item.key)
