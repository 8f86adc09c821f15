"""Copies of sources on disk: a restarted hub starts with the store's last state and the last edit of the rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from addons.offline.copies import DiskCopies, DiskCopy
from addons.offline.tables.copy_meta import applied_in, described, last_event_of, list_watch_of, source_name
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.pending_rows import ROW_OVERHEAD
from addons.offline.tables.write_behind import FLUSH_DELAY
from addons.offline.version_cache import NAME, TABLE, VersionCache
from addons.rules.issued_versions import ANY_VERSION, RulesEdit
from addons.views.persistence import Checkpoints, checkpoints_of, past_of
from kube.disk.copy_rows import objects_of, read_copy
from kube.disk.database import Disk, TableChanges
from kube.disk.writer import DiskWriter
from kube.errors import forbidden, not_found
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.history import LastSeenEvent, Standing
from kube.store.resumption import Checkpoint, name_digest
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.copying import CODEC, PODS, copies_in, pod, restored, settled, shown
from tests.addons.support.devices import Device
from tests.addons.support.observed import until

KIND = ResourceType("", "v1", "pods")
LIST_WATCHES = [
    ListWatch(KIND),
    ListWatch(KIND, encoding=Encoding.JSON),
    ListWatch(KIND, "ns"),
    ListWatch(KIND, label_selector="ns"),
    ListWatch(KIND, field_selector="ns"),
    ListWatch(KIND, metadata_only=True),
    ListWatch(ResourceType("x", "v1", "pods")),
]


async def test_a_list_and_its_events_are_loaded_after_a_restart(copies: DiskCopies) -> None:
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


async def test_a_known_empty_list_differs_from_an_unknown_one(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    assert not (await restored(copies)).complete
    store.replace(CODEC, "v1", "Pod", 5, [])
    await settled(copy)
    back = await restored(copies)
    assert (back.complete, len(back), back.version) == (True, 0, 5)


async def test_a_refusal_deletes_the_copy_and_is_stored(copies: DiskCopies) -> None:
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
    store = Store()
    refusal = await copies.copy("", PODS, store).restore()
    assert refusal is not None
    assert (refusal.code, store.complete) == (403, False)


async def test_a_store_whose_version_decreased_is_rewritten_completely(copies: DiskCopies) -> None:
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 50, [pod("a", 30), pod("b", 31)])
    await settled(copy)
    store.replace(CODEC, "v1", "Pod", 9, [pod("a", 3)])
    await settled(copy)
    back = await restored(copies)
    assert (shown(back), back.version) == ({"a": 3}, 9)


async def test_a_copy_with_an_unverified_history_is_hidden_after_a_restart(copies: DiskCopies) -> None:
    """The hub was killed before this source had verified the cloud's history."""
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    store.set_standing(Standing.DOUBTED)
    await settled(copy)
    back = await restored(copies)
    assert (back.complete, back.former_version) == (False, 5)
    store.set_standing(Standing.GOOD)
    await settled(copy)
    assert shown(await restored(copies)) == {"a": 3}


@pytest.mark.parametrize("name", ["a", "new", ""], ids=["changed", "created", "deleted"])
async def test_a_list_undoes_an_accepted_write_that_an_earlier_process_applied(
    copies: DiskCopies, name: str
) -> None:
    """The hub was killed, and the cloud restored to a moment before the write, at the version of the copy."""
    store = Store()
    copy = copies.copy("", PODS, store)
    listed = [pod("a", 3), pod("b", 4)]
    store.replace(CODEC, "v1", "Pod", 5, listed)
    await settled(copy)
    key, again = ("default", name or "a"), ("default", "b")
    for recreated in (None, pod("b", 8)):
        store.apply_response(again, recreated)
    store.apply_response(
        key, pod(name, 9).replace(b'"name"', b'"labels":{"new":""},"name"') if name else None
    )
    await settled(copy)
    back = await restored(copies)
    assert {item.key: item.raw for item in back} == {item.key: item.raw for item in store}
    assert back.applied.keys() == {key, again}
    back.replace(CODEC, "v1", "Pod", 5, listed)
    assert [item.raw for item in back] == listed


@pytest.mark.parametrize("list_watch", LIST_WATCHES)
def test_a_list_watch_survives_encoding_and_decoding(list_watch: ListWatch) -> None:
    assert list_watch_of({"question": described(list_watch)}) == list_watch


def test_copies_have_different_names_for_each_part_of_the_list_watch() -> None:
    names = {source_name(user, each) for user in ("", "someone") for each in LIST_WATCHES}
    assert len(names) == 2 * len(LIST_WATCHES)


@pytest.mark.parametrize(
    ("witness", "expected"),
    [
        (["a", "x", 7], LastSeenEvent(("a", "x"), 7)),
        ([], None),
        (None, None),
        (["a", "x", "7"], None),
        (["a"], None),
    ],
)
def test_a_malformed_last_seen_event_is_none(witness: Any, expected: LastSeenEvent | None) -> None:
    assert last_event_of({"witness": witness}) == expected


async def test_the_time_of_the_last_use_is_written_once_an_hour(tmp_path: Path) -> None:
    now = [1_000_000.0]
    copies = DiskCopies(DiskAccess(Disk(tmp_path / "cache"), DiskWriter(), lambda: now[0]))
    store = Store()
    copy = copies.copy("", PODS, store)

    async def asked() -> int:
        await settled(copy)
        found: int = copies.metas[copy.name]["asked"]
        return found

    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    assert await asked() == 1_000_000
    now[0] += 3000
    copy.use()
    assert await asked() == 1_000_000
    now[0] += 3000
    store.apply("ADDED", pod("b", 6))
    assert await asked() == 1_000_000  # a change by the cloud does not count as a use
    copy.use()
    assert await asked() == 1_006_000
    # The clock was set back: its current time is more credible than a stored time in the future.
    now[0] -= 5000
    copy.use()
    assert await asked() == 1_001_000
    copy.close()
    now[0] += 7200
    back = copies.copy("", PODS, Store())
    await back.restore()
    back.use()
    await settled(back)
    assert copies.metas[back.name]["asked"] == 1_008_200
    copies.access.close()


async def test_an_unchanged_source_is_written_again_after_the_database_was_replaced(
    copies: DiskCopies, tmp_path: Path
) -> None:
    quiet = Store()
    copy = copies.copy("", PODS, quiet)
    quiet.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    await copies.access.guard(copies.access.disk.close)
    (tmp_path / "cache" / "cache.db").write_bytes(b"garbage" * 1000)
    assert await copies.access.guard(lambda: read_copy(copies.access.disk, "another")) is None
    await settled(copy)
    assert shown(await restored(copies)) == {"a": 3}


async def test_a_copy_from_before_a_restore_is_hidden_but_reports_its_objects_as_deleted(
    tmp_path: Path,
) -> None:
    """A client that resumes at the copy's version may hold objects that the restored cloud never had."""
    async with copies_in(tmp_path) as copies:
        before = Store()
        copy = copies.copy("", PODS, before)
        before.replace(CODEC, "v1", "Pod", 10, [pod("a", 3)])
        await settled(copy)
        copy.close()
        copies.disprove_unused()
        await asyncio.gather(*copies._marking)
        assert not copies.list_watches("")
        store = Store()
        assert await copies.copy("", PODS, store).restore() is None
        assert not store.complete
        store.replace(CODEC, "v1", "Pod", 10, [pod("b", 10)])
        assert (store.former_version, [key[1] for key in store.gone_after(10)]) == (10, ["a"])


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("event", "written"),
    [
        ("restarted", ["a"]),
        ("refused", []),
        ("rewrite", ["a", "b"]),
        ("closed", ["b"]),
        ("amended", ["a", "b"]),
    ],
)
async def test_urgent_changes_of_a_copy_are_written_at_once(
    tmp_path: Path, event: str, written: list[str]
) -> None:
    device = Device(tmp_path)
    async with copies_in(tmp_path, device) as copies:
        copy, store = await copy_and_store(copies)
        store.apply("ADDED", pod("b", 6))
        match event:
            case "restarted":
                store.replace(CODEC, "v1", "Pod", 2, [pod("a", 1)])
            case "refused":
                copy.refused(forbidden("no longer"))
            case "rewrite":
                copy.rewrite()
            case "closed":
                copy.close()
            case "amended":
                store.amend(pod("a", 3) + b" ")
        began = asyncio.get_running_loop().time()
        await until(lambda: len(device.batches) == 2)
        assert asyncio.get_running_loop().time() - began < FLUSH_DELAY
        assert sorted(device.batches[1][objects_of(copy.name)].rows) == [
            f"default\0{name}" for name in written
        ]


async def test_closing_a_source_leaves_its_last_objects_on_disk(
    tmp_path: Path,
) -> None:
    async with copies_in(tmp_path) as copies:
        copy, store = await copy_and_store(copies)
        store.apply("ADDED", pod("b", 6))
        copy.close()
        store.empty()
        # Close the disk at once, before any task has run.
    async with copies_in(tmp_path) as copies:
        assert shown(await restored(copies)) == {"a": 3, "b": 6}


async def test_no_batch_splits_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under mitmproxy a new task runs at once, up to its first wait."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    monkeypatch.setattr("addons.offline.tables.pending_rows.MAX_UNWRITTEN", ROW_OVERHEAD)
    device = Device(tmp_path)
    async with copies_in(tmp_path, device) as copies:
        copy, store = await copy_and_store(copies)
        store.replace(CODEC, "v1", "Pod", 9, [pod("b", 6), pod("c", 7), pod("d", 8)])
        await settled(copy)
        assert [list(batch[objects_of(copy.name)].rows) for batch in device.batches[1:]] == [
            ["default\0b", "default\0c", "default\0d"]
        ]
        store.apply("ADDED", pod("e", 10))
        await settled(copy)
        assert (copies.metas[copy.name]["version"], shown(await restored(copies))) == (10, shown(store))


async def copy_and_store(copies: DiskCopies) -> tuple[DiskCopy, Store]:
    """Return a copy that is on disk, and its store with one pod."""
    store = Store()
    copy = copies.copy("", PODS, store)
    store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3)])
    await settled(copy)
    return copy, store


async def test_the_last_edit_of_the_rules_survives_a_restart(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        versions = VersionCache(copies)
        await versions.open()
        assert versions.last is None
        versions.write_edit(RulesEdit("a", {"pods": 5}))
        versions.write_edit(RulesEdit("b", {"pods": 7}))
        await written(copies, b'{"digest":"b","versions":{"pods":7},"former":{}}')
    async with copies_in(tmp_path) as copies:
        versions = VersionCache(copies)
        await versions.open()
        assert versions.last == RulesEdit("b", {"pods": 7})


async def test_without_a_recorded_edit_any_version_may_have_been_issued(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        versions = VersionCache(copies)
        await versions.open()
        assert versions.given().of_elsewhere("pods") == 0
        store = Store()
        copy = copies.copy("", PODS, store)
        store.replace(CODEC, "v1", "Pod", 50, [pod("a", 3)])
        await settled(copy)
    async with copies_in(tmp_path) as copies:
        versions = VersionCache(copies)
        await versions.open()
        given = versions.given()
        given.rules_edited("a", {"pods": 0})
        assert (given.of_elsewhere("pods"), given.of_other_rules("pods")) == (ANY_VERSION, ANY_VERSION)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"digest": "a", "versions": {"x": "x"}}', b"\xff"])
async def test_an_unreadable_row_is_ignored(tmp_path: Path, value: bytes) -> None:
    async with copies_in(tmp_path) as copies:
        await copies.access.write({TABLE: TableChanges({NAME: value})})
        versions = VersionCache(copies)
        await versions.open()
        assert versions.last is None
        versions.write_edit(RulesEdit("a", {"pods": 5}))
        await written(copies, b'{"digest":"a","versions":{"pods":5},"former":{}}')


async def written(copies: DiskCopies, value: bytes) -> None:
    """Return once the disk has this row."""
    while await copies.access.ask(lambda: copies.access.disk.value(TABLE, NAME)) != value:
        pass


async def test_checkpoints_of_the_views_of_a_store_are_restored(tmp_path: Path) -> None:
    hidden = frozenset({name_digest(("default", "a"))})
    made = Checkpoints(
        "rules", {"a,b": Checkpoint(9, 2**127, 3, hidden), "c": Checkpoint(9, 1, 3, frozenset())}
    )
    async with copies_in(tmp_path) as copies:
        store = Store()
        copy = copies.copy("", PODS, store)
        copy.checkpoints = lambda: made
        store.replace(CODEC, "v1", "Pod", 5, [pod("a", 3), pod("b", 4)])
        store.apply("DELETED", pod("b", 6))
        store.apply("ADDED", pod("c", 8))
        store.advance(9)
        await settled(copy)
        assert copy.has_checkpoints
        again = copies.copy("", PODS, Store())
        await again.restore()
        assert again.former == Checkpoints(), "inputs may have changed since, before the eyes of nobody"
    async with copies_in(tmp_path) as copies:
        back = copies.copy("", PODS, store := Store())
        await back.restore()
        assert back.former == made
        assert store.history.past(store.version) == (6, ((8, ("default", "c")),))
        assert not store.history.names_all_changed_after(5)


def test_a_checkpoint_in_an_earlier_format_has_no_hidden_objects() -> None:
    found = checkpoints_of({"rules": "r", "checkpoints": {"a": [9, "ff", 3]}})
    assert found.of_filters["a"] == Checkpoint(9, 255, 3, frozenset())
    assert not found.of_filters["a"].has_hidden(("default", "a"))


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"past": 3, "checkpoints": 3},
        {"past": [9, []], "checkpoints": {"a": [1]}},
        {"past": [1, [[1]]], "rules": "r", "checkpoints": {"a": [1, "x", 1]}},
    ],
)
def test_malformed_metadata_of_a_copy_is_empty(meta: dict[str, Any]) -> None:
    assert not applied_in({"applied": meta.get("past")})
    assert past_of(meta | {"version": 5}) is None
    assert checkpoints_of(meta) == Checkpoints()
