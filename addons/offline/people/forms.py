"""The forms in which clients get the objects of copies, and for people a list of what all copies together have.

A controller would take such a list for the whole, and delete what belongs to the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from itertools import batched
from typing import Any

from addons.requests.object_read import ObjectRead
from addons.views.source import Source
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.schemas.json_objects import is_known
from kube.store.listing import METADATA, WHOLE, Form, Listing
from kube.store.made_forms import AS_JSON, METADATA_AS_JSON, TABLES, plain
from kube.store.store import Item, Key, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.negotiation import METADATA_KIND, METADATA_LIST_KIND, TABLE_KIND, Representation


def first_form(accepted: Iterable[Representation], read: ObjectRead, store: Store) -> Form | None:
    """The first of some forms that can be made of a store's objects."""
    return next((form for clause in accepted if (form := _form_of(clause, read, store)) is not None), None)


def _form_of(accepted: Representation, read: ObjectRead, store: Store) -> Form | None:
    is_same = accepted.encoding is store.codec.encoding
    is_made = not is_same and accepted.encoding is Encoding.JSON and is_known(store.api_version, store.kind)
    if not is_same and not is_made:
        return None
    if accepted.kind == TABLE_KIND:
        return TABLES[accepted.version, read.include]
    if accepted.kind not in ("", METADATA_LIST_KIND if read.verb == "list" else METADATA_KIND):
        return None
    if is_same:
        return METADATA if accepted.kind else WHOLE
    return METADATA_AS_JSON if accepted.kind else AS_JSON


async def partial_list(sources: AsyncIterable[tuple[ListWatch, Source]], read: ObjectRead) -> Listing | None:
    """The objects that a list asks for, each as the first source has it; None where there is no source.

    The list is JSON, or a Table. None for a client that takes neither.
    """
    by_key: dict[Key, Item] = {}
    first: Source | None = None
    for_people = [clause for clause in read.accepted if clause.encoding is Encoding.JSON]
    async for _, source in sources:
        if first_form(for_people, read, source.store) is None:
            continue
        first = first or source
        for some in batched(list(source.store), AS_JSON.at_once):
            await asyncio.sleep(0)
            for item in some:
                if item.key not in by_key and _is_asked_for(item, read):
                    by_key[item.key] = item
    if first is None:
        return None
    form = first_form(for_people, read, first.store)
    assert form is not None
    items = sorted(by_key.values(), key=lambda item: "/".join(item.key))
    store, codec = first.store, codec_for(Encoding.JSON)
    return Listing(codec, *form.listed_type(store.api_version, store.kind), store.version, items, form)


def _is_asked_for(item: Item, read: ObjectRead) -> bool:
    if read.namespace not in ("", item.key[0]) or not read.labels.matches(item.labels):
        return False
    return read.fields.is_everything or read.fields.matches(_field_of(plain(item)))


def _field_of(tree: Json) -> Callable[[str], str]:
    """The fields of an object by their paths in JSON, as kube-apiserver's field selectors name them."""

    def value(path: str) -> str:
        field: Any = tree
        for name in path.split("."):
            field = field.get(name) if isinstance(field, dict) else None
        return "" if field is None else str(field)

    return value
