"""Reads the objects of a list for a store. A long one takes a thread, so that the event loop keeps serving."""

from __future__ import annotations

import asyncio

from kube.store.store import Item, Key, Store
from kube.wire.codec_base import Codec

LONG_LIST = 1000
"""Objects of a list from which on a thread reads them. So many cost the event loop some milliseconds."""


async def read_items(store: Store, codec: Codec, raws: list[bytes]) -> dict[Key, Item]:
    """The objects of a list, read for a store; ValueError when one cannot be read."""
    if len(raws) < LONG_LIST:
        return store.items(codec, raws)
    return await asyncio.to_thread(store.items, codec, raws)
