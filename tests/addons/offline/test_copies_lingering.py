"""When the hub writes changes: a burst together, urgent changes at once, and no part of a list."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from addons.offline.copies import LINGER, DiskCopies, DiskCopy
from kube.disk.database import Batch, Disk
from kube.disk.writer import DiskWriter
from kube.errors import forbidden
from kube.store.store import Store
from tests.addons.support.copying import CODEC, PODS, pod, restored, settled, shown


class Batches(list[Batch]):
    """What a disk is given to write."""

    def __init__(self, copies: DiskCopies, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._write = copies.disk.write
        monkeypatch.setattr(copies.disk, "write", self._noted)

    def _noted(self, batch: Batch) -> None:
        self.append(batch)
        self._write(batch)

    def names(self) -> list[list[str]]:
        return [sorted(name for _, name in batch.puts) for batch in self]


async def kept(copies: DiskCopies) -> tuple[DiskCopy, Store]:
    """A copy that is on disk, of a store with one pod."""
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    return copy, store


@pytest.mark.looptime
async def test_a_burst_is_one_batch_as_soon_as_its_first_change_has_lingered(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, store = await kept(copies)
    batches = Batches(copies, monkeypatch)
    for version in range(6, 10):
        store.apply("ADDED", pod(f"p{version}", version))
        await asyncio.sleep(0.9 * LINGER / 4)
    assert (batches.names(), copy._is_writing) == ([], False)
    await asyncio.sleep(0.1 * LINGER + 0.001)
    assert copy._writing is not None
    await copy._writing
    assert batches.names() == [["p6", "p7", "p8", "p9"]]
    store.advance(11)
    await asyncio.sleep(0.9 * LINGER)
    assert len(batches) == 1
    await settled(copy)
    assert (batches.names()[1:], batches[-1].meta["version"]) == ([[]], 11)


@pytest.mark.looptime
async def test_what_comes_while_a_batch_is_written_lingers_too(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, store = await kept(copies)
    goes_on = threading.Event()
    batches = Batches(copies, monkeypatch)
    waiting = asyncio.create_task(copies.guard(goes_on.wait))
    store.apply("ADDED", pod("b", 6))
    await asyncio.sleep(LINGER + 0.001)
    assert copy._is_writing
    store.apply("ADDED", pod("c", 7))
    goes_on.set()
    await waiting
    assert copy._writing is not None
    await copy._writing
    assert (batches.names(), copy._is_writing) == ([["b"]], False)
    assert copy._next is not None
    store.apply("ADDED", pod("d", 8))
    await settled(copy)
    assert batches.names() == [["b"], ["c", "d"]]


@pytest.mark.looptime
@pytest.mark.parametrize("event", ["restarted", "refused", "lost", "closed", "amended"])
async def test_what_is_urgent_does_not_linger(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    copy, store = await kept(copies)
    batches = Batches(copies, monkeypatch)
    store.apply("ADDED", pod("b", 6))
    match event:
        case "restarted":
            store.replace(CODEC, "v1", "Pod", 2, [pod("a", 1)])
        case "refused":
            copy.refused(forbidden("no longer"))
        case "lost":
            copy.lost()
        case "closed":
            copy.close()
        case "amended":
            store.amend(pod("a", 3) + b" ")
    await asyncio.sleep(0)
    assert copy._is_writing
    assert copy._writing is not None
    await copy._writing
    wanted = {"restarted": ["a"], "refused": [], "lost": ["a", "b"], "closed": ["b"], "amended": ["a", "b"]}
    assert batches.names() == [wanted[event]]


async def test_what_lingers_is_written_at_the_end(tmp_path: Path) -> None:
    copies = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    copy, store = await kept(copies)
    store.apply("ADDED", pod("b", 6))
    copies.close()
    assert copy._next is None
    again = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    await again.open()
    assert shown(await restored(again)) == {"a": 3, "b": 6}
    again.close()


async def test_no_batch_is_taken_in_the_middle_of_a_list(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under mitmproxy a task runs as far as it can where it is made."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    monkeypatch.setattr("addons.offline.copies.MAX_PENDING", 1)
    copy, store = await kept(copies)
    batches = Batches(copies, monkeypatch)
    store.replace(CODEC, "v1", "Pod", 9, [pod("b", 6), pod("c", 7), pod("d", 8)])
    await settled(copy)
    assert [(each[1], batch.meta["version"]) for batch in batches for each in batch.puts] == [
        ("b", 9),
        ("c", 9),
        ("d", 9),
    ]
    store.apply("ADDED", pod("e", 10))
    await settled(copy)
    assert (batches[-1].meta["version"], shown(await restored(copies))) == (10, shown(store))


@pytest.mark.parametrize("is_writing", [False, True])
async def test_what_the_node_itself_made_is_written_before_what_follows_from_it(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch, is_writing: bool
) -> None:
    """The journal promises a status to a client right after the object was made to show it."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    copy, store = await kept(copies)
    batches = Batches(copies, monkeypatch)
    if is_writing:
        copy.lost()
        await asyncio.sleep(0)
    store.amend(pod("a", 3) + b" ")
    assert copy._writing is not None
    writing = copy._writing
    known = await copies.guard(lambda: len(batches))
    await writing
    assert (known, len(batches)) == ((1, 2) if is_writing else (1, 1))
    assert [batch.puts["default", "a"] for batch in batches][-1] == pod("a", 3) + b" "
    assert not copy._is_writing
