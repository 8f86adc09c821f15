"""The forms in which clients get the objects of copies, and for people a list of the objects of all copies together.

Only people get such a list: a controller would take it as complete, and delete what belongs to missing objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from itertools import batched

from addons.requests.object_read import ObjectRead
from addons.views.source import Source
from kube.reflector.list_watch import ListWatch
from kube.store.listing import Form, Listing
from kube.store.made_forms import RecodedForm, field_of, form_of, plain
from kube.store.store import Item, Key, Store
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from kube.wire.negotiation import Representation


def first_form(accepted: Iterable[Representation], read: ObjectRead, store: Store) -> Form | None:
    """Return the first accepted form that can be made of a store's objects.

    If the client accepts both encodings, the store's comes first, so that nothing is converted.
    """
    clauses = [*accepted]
    for clause in clauses:
        plain_clause = clause._replace(encoding=store.codec.encoding)
        wanted = plain_clause if plain_clause in clauses else clause
        form = form_of(wanted, store, is_list=read.verb == "list", include=read.include)
        if form is not None:
            return form
    return None


async def partial_list(sources: AsyncIterable[tuple[ListWatch, Source]], read: ObjectRead) -> Listing | None:
    """Return the requested objects, each from the first source that has it; None without a source, or for a client that
    accepts neither form.

    The list is JSON, or a Table.
    """
    by_key: dict[Key, Item] = {}
    first: Source | None = None
    for_people = [clause for clause in read.accepted if clause.encoding is Encoding.JSON]
    async for _, source in sources:
        if first_form(for_people, read, source.store) is None:
            continue
        first = first or source
        for some in batched(list(source.store), RecodedForm.batch_size):
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
    meta = ListMeta(store.version)
    return Listing(codec, *form.listed_type(store.api_version, store.kind), meta, items, form)


def _is_asked_for(item: Item, read: ObjectRead) -> bool:
    if read.namespace not in ("", item.key[0]) or not read.labels.matches(item.labels):
        return False
    return read.fields.is_everything or read.fields.matches(field_of(plain(item)))
