"""A list for people of what the node has, where no copy of it holds every object.

A controller would take such a list for the whole, and delete what belongs to the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable
from itertools import batched
from typing import Any

from addons.offline.people.forms import first_form
from addons.requests.object_read import ObjectRead
from addons.views.source import Source
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.store.listing import Listing
from kube.store.made_forms import AS_JSON, plain
from kube.store.store import Item, Key
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding


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
