"""Long lists are read by a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from kube.packed_text import Kept
from kube.reflector.list_pages import read_items
from kube.store.store import Item, Key, Store
from kube.wire.codec import Codec, codec_for
from kube.wire.encoding import Encoding


async def test_a_long_list_is_looked_at_in_a_thread_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kube.reflector.list_pages.LONG_LIST", 2)
    codec, threads = codec_for(Encoding.JSON), set()

    class Watched(Store):
        def items(self, codec: Codec, raws: Iterable[Kept]) -> dict[Key, Item]:
            threads.add(threading.current_thread())
            return super().items(codec, raws)

    def raw(name: str, version: object) -> bytes:
        return b'{"metadata":{"name":"%s","resourceVersion":"%s"}}' % (name.encode(), str(version).encode())

    store = Watched()
    items = await read_items(store, codec, [raw("a", 1), raw("b", 2)])
    assert {key: item.version for key, item in items.items()} == {("", "a"): 1, ("", "b"): 2}
    assert threading.current_thread() not in threads
    with pytest.raises(ValueError, match="no version"):
        await read_items(store, codec, [raw("a", 1), raw("b", "no version")])
    assert not store.complete
