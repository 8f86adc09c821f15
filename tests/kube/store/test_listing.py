"""A list of a view: one state at one version, in the requested form."""

from __future__ import annotations

import asyncio
import json

import pytest

from kube.packed_text import PackedText, StoredText
from kube.requests.continue_tokens import ContinueToken, parse_continue
from kube.store.view import MATCH_BATCH
from tests.kube.support.toys import Toy, filled, scope, tell, view_of


def test_a_list_decompresses_its_texts_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.wire.codec_base.CHUNK", 3_000)
    store = filled(10, *(Toy(f"s{number}", version=4, app="x" * 2_000) for number in range(6)))
    listing = view_of(store).listing()
    formed = listing.formed(listing.items)
    assert {type(each) for each in formed} == {PackedText}
    unpacked: list[StoredText] = []

    class Counted(PackedText):
        def __bytes__(self) -> bytes:
            unpacked.append(self)
            return super().__bytes__()

    body = listing.body(
        [Counted(bytes(each), each.type_size) for each in formed if isinstance(each, PackedText)]
    )
    assert not unpacked
    pieces = iter(body)
    first = next(pieces)
    assert len(unpacked) == 2
    rest = b"".join(pieces)
    assert len(unpacked) == 6
    assert len(first + rest) == body.size
    assert [each["metadata"]["name"] for each in json.loads(first + rest)["items"]] == [
        f"s{number}" for number in range(6)
    ]


async def test_a_long_list_is_matched_in_slices_and_includes_later_changes() -> None:
    """8 KB of selector on 3,000 objects once blocked the event loop for 0.3 s."""
    toys = [Toy(f"t{number}", app="web") for number in range(2 * MATCH_BATCH + 1)]
    store = filled(10, *toys)
    view = view_of(store, None, scope(labels="app=web"))
    looked = asyncio.create_task(view.match())
    for iteration in range(2):
        await asyncio.sleep(0)
        assert not looked.done(), iteration
    tell(store, "MODIFIED", Toy("t0", version=11, app="db"))
    tell(store, "ADDED", Toy("new", version=12, app="web"))
    await looked
    names = {item.key[1] for item in view.listing().items}
    assert names == {toy.name for toy in toys[1:]} | {"new"}
    assert view.listing().meta.version == 12
    await asyncio.sleep(0)
    assert not view._known, "and nothing is remembered of it"


def test_pages_cover_a_list_in_order() -> None:
    store = filled(10, *(Toy(name, version=4, namespace=space) for space in ("a", "a-b") for name in "yxz"))
    listing = view_of(store).listing()
    seen: list[str] = []
    start = ""
    while True:
        page = listing.page(start, 4, "")
        seen += [f"{item.key[0]}/{item.key[1]}" for item in page.items]
        if not page.meta.continue_token:
            break
        assert page.meta.remaining == 6 - len(seen)
        start = parse_continue(page.meta.continue_token).start
    assert seen == ["a-b/x", "a-b/y", "a-b/z", "a/x", "a/y", "a/z"]
    assert listing.page("a/", 0, "").meta.remaining is None


def test_pages_of_a_namespace_are_continued_by_name() -> None:
    page = view_of(filled(10, Toy("x", version=4), Toy("y", version=5))).listing().page("", 1, "a")
    assert parse_continue(page.meta.continue_token) == ContinueToken(10, "x\0")
