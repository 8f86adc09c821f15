"""Answers with lists: in the pages that a client requests, and in pieces, so that other clients are served between
them."""

from __future__ import annotations

import asyncio
from itertools import batched
from typing import NamedTuple

from addons.requests.answers import Answer, headers_of
from addons.requests.object_read import ObjectRead
from kube.bounds import reached
from kube.errors import continue_expired
from kube.http.zstd_bodies import pack
from kube.packed_text import StoredText
from kube.requests.continue_tokens import LATEST
from kube.store.listing import Listing
from kube.store.projection import Projection
from kube.store.view import View
from kube.wire.codec_base import CHUNK

MAX_PAGED = 64 * 1024 * 1024
"""Bytes of all lists that clients are reading by pages. Each may hold objects that the store has dropped."""
PAGES_TTL = 300.0
"""Seconds within which a client must read all pages. kube-apiserver has etcd compact older states after the same
time."""


async def list_answer(listing: Listing, *, packed: bool = False, warning: str = "") -> Answer:
    """Build the complete answer; all errors are raised before its first byte.

    A list that is larger than a piece, or `packed` in zstd, is chunked, as kube-apiserver's large lists are. Others
    have a Content-Length.
    """
    formed: list[StoredText] = []
    for part in batched(listing.items, listing.form.batch_size):
        if formed:
            await asyncio.sleep(0)
        formed += listing.formed(part)
    body, headers = listing.body(formed), headers_of(listing.codec.content_type, warning)
    if packed:
        return Answer(pack(body, body.size), {**headers, "Content-Encoding": "zstd"})
    return Answer(bytes(body) if body.size <= CHUNK else body, headers)


class _Paged(NamedTuple):
    projection: Projection
    listing: Listing
    size: int


class PagedLists:
    """The lists that clients read page by page, each at the version of its first page."""

    def __init__(self) -> None:
        self._lists: dict[tuple[View, int], _Paged] = {}
        self._bytes = 0

    def page(self, view: View, read: ObjectRead, confirmed: int) -> Listing:
        """Return a page of a list for a client. `confirmed` is that of `View.listing`.

        StatusError 410 for a further page of an expired list, with a token to continue in the newest one. A list over
        the bound is sent without pages: the API lets a server ignore a limit.
        """
        if read.continued is None or read.continued.version == LATEST:
            listing = view.listing(confirmed)
        else:
            pages = self._lists.get((view, read.continued.version))
            if pages is None or pages.projection is not view.projection:  # other rules filter since
                raise continue_expired(read.continued._replace(version=LATEST).encode())
            listing = pages.listing
        start = read.continued.start if read.continued is not None else ""
        page = listing.page(start, read.limit, read.namespace)
        if page.meta.continue_token and not self._keep(view, listing):
            return listing.page(start, 0, read.namespace)
        if not (read.labels.is_everything and read.fields.is_everything):
            # kube-apiserver would have to count them
            return page._replace(meta=page.meta._replace(remaining=None))
        return page

    def _keep(self, view: View, listing: Listing) -> bool:
        key = view, listing.meta.version
        pages = self._lists.get(key)
        if pages is not None and pages.listing is listing:
            return True
        self._drop(key)
        paged = _Paged(view.projection, listing, sum(len(item.stored) for item in listing.items))
        if paged.size > MAX_PAGED:
            reached("lists read in pages")
            return False
        while self._bytes + paged.size > MAX_PAGED:
            reached("lists read in pages")
            self._drop(next(iter(self._lists)))
        self._lists[key] = paged
        self._bytes += paged.size
        asyncio.get_running_loop().call_later(PAGES_TTL, self._expire, key, paged)
        return True

    def _expire(self, key: tuple[View, int], paged: _Paged) -> None:
        if self._lists.get(key) is paged:
            self._drop(key)

    def _drop(self, key: tuple[View, int]) -> None:
        if (dropped := self._lists.pop(key, None)) is not None:
            self._bytes -= dropped.size
