"""Lists as answers: written in pieces, between which everybody else is served."""

from __future__ import annotations

import asyncio
from itertools import batched

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from addons.views.responses import HEADERS, AnswerBody
from kube.http.zstd_bodies import pack
from kube.packed_text import Kept
from kube.store.listing import Listing
from kube.wire.codec_base import PIECE, ListBody

SLICE = 1000
"""Objects that are made ready for a list at once."""


class Pieces(Payload):
    """The body of a list as aiohttp takes it: with its Content-Length, and made as the client reads."""

    def __init__(self, body: ListBody) -> None:
        super().__init__(body)
        self._body = body
        self._size = body.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._body).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._body:
            await writer.write(piece)
            # A client that reads as fast as the hub writes never makes it wait.
            await asyncio.sleep(0)


async def list_response(
    listing: Listing, body: AnswerBody | None = None, *, packed: bool = False
) -> web.StreamResponse:
    """The whole answer. What can fail has been done when its headers go out.

    A list that is larger than a piece, or `packed` in zstd, goes to `body`, and is chunked as kube-apiserver's large
    lists are. Others have a Content-Length.
    """
    formed: list[Kept] = []
    for part in batched(listing.items, SLICE):
        if formed:
            await asyncio.sleep(0)
        formed += listing.formed(part)
    whole, headers = listing.body(formed), {**HEADERS, "Content-Type": listing.codec.content_type}
    if body is None or (whole.size <= PIECE and not packed):
        return web.Response(body=Pieces(whole), headers=headers)
    try:
        await body.begin({**headers, "Content-Encoding": "zstd"} if packed else headers)
        await body.write_all(pack(whole, whole.size) if packed else whole)
    except ConnectionError:
        pass  # the client left while something was written to it
    return body.response
