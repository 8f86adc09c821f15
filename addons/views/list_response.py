"""Lists as answers: written in pieces, between which everybody else is served."""

from __future__ import annotations

import asyncio
from itertools import batched

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from addons.views.responses import HEADERS
from kube.http.zstd_bodies import pack
from kube.store.listing import Listing
from kube.wire.codec_base import ListBody

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


class PackedPieces(Pieces):
    """The same body in zstd, whose length nobody knows before it is made."""

    def __init__(self, body: ListBody) -> None:
        super().__init__(body)
        self._size = None

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in pack(self._body, self._body.size):
            await writer.write(piece)
            await asyncio.sleep(0)


async def list_response(listing: Listing, *, packed: bool = False) -> web.Response:
    """The whole answer, `packed` in zstd or not. What can fail has been done when its headers go out."""
    raws: list[bytes] = []
    for part in batched(listing.items, SLICE):
        if raws:
            await asyncio.sleep(0)
        raws += listing.raws(part)
    body, headers = listing.body(raws), {**HEADERS, "Content-Type": listing.codec.content_type}
    if packed:
        return web.Response(body=PackedPieces(body), headers={**headers, "Content-Encoding": "zstd"})
    return web.Response(body=Pieces(body), headers=headers)
