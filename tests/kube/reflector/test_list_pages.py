"""Long lists are parsed in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import pytest

from kube.http.client import ApiResponse, TooLarge
from kube.packed_text import StoredText
from kube.reflector.list_pages import PAGE_OVERHEAD, read_items, read_pages
from kube.store.store import Item, Key, Store
from kube.wire.codec import Codec, codec_for
from kube.wire.codec_base import Peeks
from kube.wire.encoding import Encoding

PAGE = (
    b'{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"x"},"items":[]}'
)


async def test_a_long_list_is_parsed_in_a_thread_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube.reflector.list_pages.LONG_LIST", 2)
    codec, threads = codec_for(Encoding.JSON), set()

    class Watched(Store):
        def items(self, codec: Codec, raws: Iterable[StoredText], peeks: Peeks = ()) -> dict[Key, Item]:
            threads.add(threading.current_thread())
            return super().items(codec, raws, peeks)

    def raw(name: str, version: object) -> bytes:
        return b'{"metadata":{"name":"%s","resourceVersion":"%s"}}' % (name.encode(), str(version).encode())

    store = Watched()
    items = await read_items(store, codec, [raw("a", 1), raw("b", 2)])
    assert {key: item.version for key, item in items.items()} == {("", "a"): 1, ("", "b"): 2}
    assert threading.current_thread() not in threads
    with pytest.raises(ValueError, match="no version"):
        await read_items(store, codec, [raw("a", 1), raw("b", "no version")])
    assert not store.complete


async def test_a_store_does_not_parse_an_item_again_that_its_page_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec = codec_for(Encoding.JSON)
    item = b'{"metadata":{"name":"a","resourceVersion":"1"}}'
    page = codec.decode_stored(PAGE.replace(b"[]", b"[%b]" % item))
    monkeypatch.setattr(codec, "peek", None)
    items = await read_items(Store(), codec, page.items, page.peeks)
    assert {key: made.version for key, made in items.items()} == {("", "a"): 1}


async def test_a_further_page_is_requested_only_by_its_token() -> None:
    """kube-apiserver refuses a version, or its match, together with a token with 422."""
    asked: list[Mapping[str, str]] = []

    async def ask(query: Mapping[str, str]) -> ApiResponse:
        asked.append(query)
        return ApiResponse("application/json", PAGE if len(asked) < 3 else PAGE.replace(b"x", b""))

    await read_pages(
        ask,
        {"labelSelector": "a", "resourceVersion": "7", "resourceVersionMatch": "Exact"},
        lambda _size: None,
    )
    assert asked[0]["resourceVersionMatch"] == "Exact"
    assert asked[1:] == [{"labelSelector": "a", "limit": "500", "continue": "x"}] * 2


async def test_a_list_with_endless_pages_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty page has a hundred bytes: a list once consisted of five million."""
    monkeypatch.setattr("kube.reflector.list_pages.MAX_LIST", 100 * PAGE_OVERHEAD)
    asked = 0

    async def ask(_query: Mapping[str, str]) -> ApiResponse:
        nonlocal asked
        asked += 1
        assert asked <= 100
        return ApiResponse("application/json", PAGE)

    with pytest.raises(TooLarge):
        await read_pages(ask, {}, lambda _size: None)
