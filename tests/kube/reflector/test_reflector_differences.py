"""The reflector reads differences where a server writes them, and goes on with whole objects where one does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from aiohttp import web

from kube.differences.reader import UnusableRecord
from kube.differences.records import CODING, Former, event_record, plain_record
from kube.http.zstd_bodies import pack
from kube.reflector.list_pages import Malformed
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.kube.support.reflecting import PATIENCE, Start, until
from tests.kube.support.serving import serving
from tests.kube.support.toys import RecordedInputs, Toy

CODEC = codec_for(Encoding.JSON)
LIST = CODEC.encode_list("v1", "Service", ListMeta(10), [Toy("x", version=10).raw(Encoding.JSON)])
NAMES = CODEC.encode_list("v1", "Service", ListMeta(20), [Toy("x", version=11).raw(Encoding.JSON)])
(BEFORE,) = CODEC.decode_list(bytes(LIST)).items
AFTER = Toy("x", version=11, address="10.0.0.2").raw(Encoding.JSON)
EVENT = CODEC.encode_event("MODIFIED", "v1", "Service", AFTER)
FITS = event_record(EVENT, Former("a", "x", 10, BEFORE))
MISFITS = {
    "another version": event_record(EVENT, Former("a", "x", 9, BEFORE)),
    "damaged": FITS[:-1] + bytes([FITS[-1] ^ 1]),
    "oversized": b"\xff" + FITS[1:],
    "cut off": FITS[:-1],
    "no record": b"<html>log in</html>",
}


class Server:
    """A server with a list of one object. It answers each watch with the next of some streams; the last one stays
    open."""

    def __init__(self, *streams: Sequence[bytes]) -> None:
        self.watches: list[tuple[str, str]] = []
        """Version and codings that each watch asked for."""
        self.lists = 0
        self.last = asyncio.Event()
        """The last stream was asked for."""
        self._streams = list(streams)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        codings = request.headers["Accept-Encoding"]
        if "as=PartialObjectMetadataList" in request.headers["Accept"]:
            return web.Response(body=bytes(NAMES), headers={"Content-Type": CODEC.content_type})
        if "watch" not in request.query:
            self.lists += 1
            assert "zstd" in codings.split(",")
            headers = {"Content-Type": CODEC.content_type, "Content-Encoding": "zstd"}
            return web.Response(body=b"".join(pack(LIST, LIST.size)), headers=headers)
        self.watches.append((request.query["resourceVersion"], codings))
        stream = self._streams.pop(0)
        headers = {"Content-Type": CODEC.watch_content_type}
        if CODING in codings.split(","):
            headers["Content-Encoding"] = CODING
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for piece in stream:
            await response.write(piece)
        if not self._streams:
            self.last.set()
            await asyncio.Event().wait()
        return response


async def test_a_list_in_zstd_and_differences_to_it_are_followed(start: Start) -> None:
    server = Server([FITS[:7], FITS[7:], plain_record(CODEC.encode_bookmark("v1", "Service", 20))])
    async with serving(server.answer) as url:
        store = Store()
        heard = RecordedInputs(store)
        reflector = start(store, url=url)
        await until(reflector, store, lambda: store.version == 20)
    assert heard.heard == ["at 10", (11, ("a", "x"), 10, 11), "at 20"]
    assert [CODEC.peek(item.raw).version for item in store] == [11]


@pytest.mark.parametrize("misfit", MISFITS.values(), ids=MISFITS.keys())
async def test_after_a_difference_that_does_not_fit_the_next_watch_is_plain(
    start: Start, misfit: bytes
) -> None:
    """Nothing is listed again, and nothing is lost."""
    bookmark = CODEC.encode_bookmark("v1", "Service", 20)
    server = Server([misfit], [EVENT, bookmark], [plain_record(bookmark)])
    async with serving(server.answer) as url:
        store = Store()
        heard = RecordedInputs(store)
        reflector = start(store, url=url)
        await until(reflector, store, lambda: isinstance(reflector.error, UnusableRecord))
        await until(reflector, store, lambda: store.version == 20)
        async with asyncio.timeout(PATIENCE):
            await server.last.wait()
    assert heard.heard == ["at 10", (11, ("a", "x"), 10, 11), "at 20"]
    both = f"{CODING},gzip"
    assert server.watches == [("10", both), ("10", "gzip"), ("20", both)]
    assert server.lists == 1


async def test_a_coding_that_was_not_asked_for_is_malformed(start: Start) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=bytes(LIST), content_type="application/json")
        return web.Response(headers={"Content-Type": "application/json", "Content-Encoding": "br"})

    async with serving(answer) as url:
        store = Store()
        reflector = start(store, url=url)
        await until(reflector, store, lambda: isinstance(reflector.error, Malformed))
