"""A view's objects as a list, and the form in which a view writes objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kube.packed_text import Kept
from kube.store.store import Item
from kube.wire.codec import Codec
from kube.wire.codec_base import ListBody


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
    """The objects of a list at one version. Later changes of the store do not reach it."""

    codec: Codec
    api_version: str
    kind: str
    version: int
    items: list[Item]
    form: Form

    def formed(self, items: Iterable[Item]) -> list[Kept]:
        """Some of the items in the form of the list. For a metadata list, each item is parsed."""
        return [self.form.kept(self.codec, item) for item in items]

    def body(self, formed: Sequence[Kept]) -> ListBody:
        """The body of the whole list, from the results of `formed` for all items.

        What the items keep packed is unpacked piece by piece, as the body is read.
        """
        return self.codec.encode_list(self.api_version, self.kind, self.version, formed)
