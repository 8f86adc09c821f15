"""Sources on disk: the disk has a state that the store had, and a restarted hub begins with the last one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import diskcache
import pytest

from addons.offline.copies import DiskCopies
from addons.offline.copy_meta import source_name
from kube.disk.database import Batch, Disk, DiskError, open_cache
from kube.disk.writer import DiskWriter
from kube.errors import forbidden, not_found
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.copying import CODEC, PODS, copies_in, pod, restored, settled, shown
from tests.addons.support.observed import until


async def test_a_list_and_its_events_come_back(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3), pod("b", 4)])
    await settled(copy)
    store.apply("MODIFIED", pod("a", 6))
    store.apply("DELETED", pod("b", 7))
    store.apply("ADDED", pod("c", 8))
    store.advance(9)
    await settled(copy)
    back = await restored(copies)
    assert shown(back) == {"a": 6, "c": 8}
    assert (back.version, back.complete, back.kind) == (9, True, "Pod")


async def test_what_changes_while_a_batch_is_written_is_in_the_next(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 1, [])
    await asyncio.sleep(0)
    for version in range(2, 200):
        store.apply("ADDED", pod(f"p{version}", version))
        if version % 10 == 0:
            await asyncio.sleep(0)
    await settled(copy)
    assert shown(await restored(copies)) == shown(store)


async def test_known_empty_is_not_unknown(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    assert not (await restored(copies)).complete
    store.replace(CODEC, "v1", "Pod", 5, [])
    await settled(copy)
    back = await restored(copies)
    assert (back.complete, len(back), back.version) == (True, 0, 5)


async def test_nobody_gets_another_identitys_copy(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("alice", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    assert not (await restored(copies, "bob")).complete
    assert (await restored(copies, "alice")).complete


async def test_a_refusal_takes_the_copy_away_and_a_missing_kind_is_remembered(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    copy.refused(not_found("pods", ""))
    await settled(copy)
    refusal = await copies.copy("", PODS, Store()).restore()
    assert refusal is not None
    assert refusal.code == 404
    copy.refused(forbidden("no longer"))
    await settled(copy)
    assert not (await restored(copies)).complete


async def test_versions_that_went_back_are_written_whole(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 50, [pod("a", 30), pod("b", 31)])
    await settled(copy)
    store.replace(CODEC, "v1", "Pod", 9, [pod("a", 3)])
    await settled(copy)
    back = await restored(copies)
    assert (shown(back), back.version) == ({"a": 3}, 9)


async def test_a_disk_that_fails_is_counted_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("addons.offline.copies.RETRY", 0.01)
    failing = [True]

    def opener(folder: Path) -> diskcache.Cache:
        if failing[0]:
            raise OSError(28, "No space left on device")
        return open_cache(folder)

    copies = DiskCopies(Disk(tmp_path / "cache", opener), DiskWriter())
    await copies.open()
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await until(lambda: caplog.records)  # the disk has failed
    failing[0] = False
    store.apply("ADDED", pod("b", 6))
    await settled(copy)
    assert shown(await restored(copies)) == {"a": 3, "b": 6}
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    copies.close()


async def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    copies = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    await copies.open()
    store = Store()
    copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    copies.close()
    again = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    await again.open()
    assert shown(await restored(again)) == {"a": 3}
    again.close()


async def test_named_values_are_written_at_the_end_too_before_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path / "cache")
    copies = DiskCopies(disk, DiskWriter())
    await copies.open()
    await copies.guard(lambda: disk.put("t", {"gone": b"1", "stays": b"2"}))
    store = Store()
    copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    order: list[str] = []

    def noting(name: str, work: Callable[..., None]) -> Callable[..., None]:
        def run(*args: object) -> None:
            order.append(name)
            work(*args)

        return run

    monkeypatch.setattr(disk, "put_all", noting("put", disk.put_all))
    monkeypatch.setattr(disk, "write", noting("write", disk.write))
    copies.close({"t": {"gone": None, "new": b"3"}})
    assert order == ["put", "write"]
    again = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    await again.open()
    assert await again.guard(lambda: again.disk.values("t")) == {"stays": b"2", "new": b"3"}
    assert shown(await restored(again)) == {"a": 3}
    again.close()


async def test_values_that_cannot_be_written_at_the_end_do_not_keep_back_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path / "cache")
    copies = DiskCopies(disk, DiskWriter())
    await copies.open()
    store = Store()
    copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])

    def full(*_: object) -> None:
        raise DiskError("No space left on device")

    monkeypatch.setattr(disk, "put_all", full)
    copies.close({"t": {"new": b"3"}})
    assert "not written at the end" in caplog.text
    again = DiskCopies(Disk(tmp_path / "cache"), DiskWriter())
    await again.open()
    assert shown(await restored(again)) == {"a": 3}
    again.close()


def test_names_differ_with_each_part_of_the_question() -> None:
    kind = ResourceType("", "v1", "pods")
    list_watches = [
        ListWatch(kind),
        ListWatch(kind, encoding=Encoding.JSON),
        ListWatch(kind, "ns"),
        ListWatch(kind, label_selector="ns"),
        ListWatch(kind, field_selector="ns"),
        ListWatch(kind, metadata_only=True),
        ListWatch(ResourceType("x", "v1", "pods")),
    ]
    names = {source_name(identity, list_watch) for identity in ("", "someone") for list_watch in list_watches}
    assert len(names) == 2 * len(list_watches)


async def test_a_bug_in_a_write_loses_no_change(copies: DiskCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("addons.offline.copies.RETRY", 0.0)
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    write = copies.disk.write
    failed: list[Batch] = []

    def fail_once(batch: Batch) -> None:
        if not failed:
            failed.append(batch)
            raise LookupError("a bug")
        write(batch)

    monkeypatch.setattr(copies.disk, "write", fail_once)
    store.apply("ADDED", pod("b", 6))
    await settled(copy)
    store.apply("ADDED", pod("c", 7))
    await settled(copy)
    assert failed
    assert shown(await restored(copies)) == {"a": 3, "b": 6, "c": 7}


async def test_a_copy_that_is_followed_no_longer_is_not_written_over_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.copies.RETRY", 0.01)
    full = [True]

    def opener(folder: Path) -> diskcache.Cache:
        if full[0]:
            raise OSError(28, "No space left on device")
        return open_cache(folder)

    copies = DiskCopies(Disk(tmp_path / "cache", opener), DiskWriter())
    old, new = Store(), Store()
    copy = copies.copy("", PODS, old)
    old.replace(CODEC, "v1", "Pod", 5, [pod("old", 3)])
    copy.close()
    await settled(copy)
    full[0] = False
    successor = copies.copy("", PODS, new)
    new.replace(CODEC, "v1", "Pod", 9, [pod("new", 8)])
    await settled(successor)
    await asyncio.sleep(0.05)
    assert shown(await restored(copies)) == {"new": 8}
    copies.close()


async def test_the_last_question_is_written_once_an_hour(tmp_path: Path) -> None:
    now = [1_000_000.0]
    copies = DiskCopies(Disk(tmp_path / "cache"), DiskWriter(), lambda: now[0])
    store = Store()
    copy = copies.copy("", PODS, store)

    async def asked() -> int:
        await settled(copy)
        found: int = copies.disk.metas[copy.name]["asked"]
        return found

    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    assert await asked() == 1_000_000
    now[0] += 3000
    copy.use()
    assert await asked() == 1_000_000
    now[0] += 3000
    store.apply("ADDED", pod("b", 6))
    assert await asked() == 1_000_000  # that the cloud changes something is no question
    copy.use()
    assert await asked() == 1_006_000
    # A clock that was set back: what it says now is nearer to the truth than a time to come.
    now[0] -= 5000
    copy.use()
    assert await asked() == 1_001_000
    copy.close()
    now[0] += 7200
    back = copies.copy("", PODS, Store())
    await back.restore()
    back.use()
    await settled(back)
    assert copies.disk.metas[back.name]["asked"] == 1_008_200
    copies.close()


async def test_who_waits_does_not_wait_for_a_slow_disk(
    copies: DiskCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("addons.offline.copies.PATIENCE", 0.01)
    released = threading.Event()
    assert await copies.ask(released.wait) is None
    released.set()
    assert await copies.guard(lambda: "in its order, later") == "in its order, later"


async def test_a_quiet_source_is_written_again_after_the_store_was_set_aside(
    copies: DiskCopies, tmp_path: Path
) -> None:
    quiet = Store()
    copy = copies.copy("", PODS, quiet)
    quiet.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    await copies.guard(copies.disk.close)
    (tmp_path / "cache" / "cache.db").write_bytes(b"garbage" * 1000)
    assert await copies.guard(lambda: copies.disk.read("another")) is None
    await settled(copy)
    assert shown(await restored(copies)) == {"a": 3}


async def test_a_copy_of_a_former_history_is_shown_to_nobody_and_known_to_its_source(tmp_path: Path) -> None:
    """The cloud was restored. Who comes back with the copy's version may hold what the cloud never had."""
    async with copies_in(tmp_path) as copies:
        before = Store()
        copy = copies.copy("", PODS, before)
        before.replace(CODEC, "v1", "Pod", 10, [pod("a", 3)])
        await settled(copy)
        copy.close()
        copies.disprove_unused()
        assert copies._disproving is not None
        await copies._disproving
        assert not copies.list_watches("")
        store = Store()
        assert await copies.copy("", PODS, store).restore() is None
        assert not store.complete
        store.replace(CODEC, "v1", "Pod", 10, [pod("b", 10)])
        assert (store.former_version, [key[1] for key in store.gone_after(10)]) == (10, ["a"])
