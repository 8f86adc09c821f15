"""Reads the cloud's responses for a store: lists page by page, within bounds, and watches in any coding.

A thread decodes long lists, so that the event loop keeps serving.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from kube.differences.reader import DifferenceReader
from kube.errors import StatusError
from kube.http.client import ApiResponse, TooLarge, WatchStream
from kube.packed_text import StoredText
from kube.store.store import Item, Key, Store
from kube.wire.codec import Codec, FrameReader, ListPage, codec_for
from kube.wire.codec_base import MAX_ITEMS, Peeks
from kube.wire.encoding import Encoding

PAGE = 500
"""Objects of a page, as in client-go's pager. It bounds the memory of one response."""
MAX_LIST = 512 * 1024 * 1024
"""The most bytes of all pages of a list, in case a server never ends it."""
PAGE_OVERHEAD = 64 * 1024
"""Bytes that each page counts in addition to its own, because a server could send empty pages forever."""
LONG_LIST = 1000
"""The most objects that are decoded in the event loop, in some milliseconds. A thread decodes longer lists."""

type Ask = Callable[[Mapping[str, str]], Awaitable[ApiResponse]]
"""Sends the request for a page with this query."""


class Malformed(Exception):
    """A response violates the protocol. The store keeps its objects, and the reflector lists again."""


async def read_pages(
    ask: Ask, query: Mapping[str, str], came: Callable[[int], None]
) -> tuple[Codec, list[ListPage[StoredText]]]:
    """Read all pages of the list that `query` selects. `came` is called after each page with the bytes so far.

    Raises the errors of `ask`; Malformed for a page that cannot be parsed, TooLarge for a list over the bounds.
    """
    pages: list[ListPage[StoredText]] = []
    size = 0
    page_query = {**query, "limit": str(PAGE)}
    while True:
        try:
            answer = await ask(page_query)
        except StatusError as error:
            if error.code != 410 or not pages:
                raise
            # The snapshot of the pages has expired, so request the full list at once, as client-go's pager does.
            pages.clear()
            size, page_query = 0, dict(query)
            continue
        codec = codec_of(answer.content_type)
        pages.append(await page_of(codec, answer))
        size += max(len(answer.body), sum(map(len, pages[-1].items)))
        if size + PAGE_OVERHEAD * len(pages) > MAX_LIST or sum(len(page.items) for page in pages) > MAX_ITEMS:
            raise TooLarge(f"the list is over {MAX_LIST} bytes or {MAX_ITEMS} objects")
        came(size)
        if not pages[-1].continue_token:
            return codec, pages
        # The continue token has the version, and kube-apiserver refuses both together (422).
        first_only = {"resourceVersion", "resourceVersionMatch"}
        page_query = {name: value for name, value in page_query.items() if name not in first_only}
        page_query["continue"] = pages[-1].continue_token


async def read_items(
    store: Store, codec: Codec, raws: Sequence[StoredText], peeks: Peeks = ()
) -> dict[Key, Item]:
    """Parse the objects of a list for a store; ValueError if one is malformed. `peeks` are those of the page."""
    if len(raws) < LONG_LIST:
        return store.items(codec, raws, peeks)
    return await asyncio.to_thread(store.items, codec, raws, peeks)


def joined(
    pages: Iterable[ListPage[StoredText]],
) -> tuple[list[StoredText], Peeks]:
    """Join the items of all pages of a list, and their peeks."""
    return [raw for page in pages for raw in page.items], [peek for page in pages for peek in page.peeks]


def names_of(codec: Codec, raws: Iterable[StoredText]) -> dict[Key, int]:
    """The versions of objects by name; ValueError if one is malformed."""
    return {(peek.namespace, peek.name): peek.version for peek in map(codec.peek, map(bytes, raws))}


async def read_names(ask: Ask, query: Mapping[str, str]) -> tuple[int, dict[Key, int]]:
    """Read the version of a list, and the versions of its objects by name. Raises as `read_pages`; Malformed for a
    malformed object."""
    codec, pages = await read_pages(ask, query, lambda _size: None)
    raws = [raw for page in pages for raw in page.items]
    try:
        is_long = len(raws) >= LONG_LIST
        names = await asyncio.to_thread(names_of, codec, raws) if is_long else names_of(codec, raws)
        return pages[-1].version, names
    except ValueError as error:
        raise Malformed(f"list: {error}") from error


async def read_version(ask: Ask, query: Mapping[str, str]) -> tuple[int, int | None]:
    """Read the server's current version, and the number of objects, None if the server does not give it.

    Uses a list of one object. Raises as `read_pages`.
    """
    answer = await ask({**query, "limit": "1"})
    page = await page_of(codec_of(answer.content_type), answer)
    if page.continue_token and page.remaining is None:
        return page.version, None
    return page.version, len(page.items) + (page.remaining or 0)


def codec_of(content_type: str) -> Codec:
    """The codec for a response's media type; Malformed for one that was not requested."""
    try:
        return codec_for(Encoding(content_type))
    except ValueError:
        raise Malformed(f"the cloud answered in {content_type or 'no media type'}") from None


async def page_of(codec: Codec, answer: ApiResponse) -> ListPage[StoredText]:
    """Parse a response as a page of a list; Malformed if it is none."""
    try:
        return await answer.decoded(codec.decode_stored)
    except ValueError as error:
        raise Malformed(f"list: {error}") from error


def reader_of(stream: WatchStream, codings: str, store: Store) -> FrameReader | DifferenceReader:
    """A reader for the coding of a watch. Malformed if the coding is not among `codings`, which the request
    accepted."""
    codec = codec_of(stream.content_type)
    if not stream.coding:
        return codec.frames()
    if stream.coding not in codings.split(",") or codec is not store.codec:
        raise Malformed(f"watch: unexpected format: {stream.content_type} in {stream.coding}")

    def held(namespace: str, name: str) -> tuple[int, bytes] | None:
        item = store.get((namespace, name))
        return (item.version, item.raw) if item is not None else None

    return DifferenceReader(codec, held)
