"""The last edit of the rules on disk, for the next process."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.offline.copies import DiskCopies
from addons.offline.kept_versions import NAME, TABLE, KeptVersions
from addons.rules.given_versions import ANY_VERSION, RulesEdit
from kube.disk.database import TableChanges
from kube.store.store import Store
from tests.addons.support.copying import CODEC, PODS, copies_in, pod, settled


async def test_the_next_process_finds_the_last_edit(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        kept = KeptVersions(copies)
        await kept.open()
        assert kept.last is None
        kept.keep(RulesEdit("a", {"pods": 5}))
        kept.keep(RulesEdit("b", {"pods": 7}))
        await written(copies, b'{"digest":"b","versions":{"pods":7},"former":{}}')
    async with copies_in(tmp_path) as copies:
        kept = KeptVersions(copies)
        await kept.open()
        assert kept.last == RulesEdit("b", {"pods": 7})


async def test_who_left_copies_without_an_edit_may_have_given_any_version(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        kept = KeptVersions(copies)
        await kept.open()
        assert kept.given().of_elsewhere("pods") == 0
        store = Store()
        copy = copies.copy("", PODS, store)
        store.replace(CODEC, "v1", "Pod", 50, [pod("a", 3)])
        await settled(copy)
    async with copies_in(tmp_path) as copies:
        kept = KeptVersions(copies)
        await kept.open()
        given = kept.given()
        given.rules_edited("a", {"pods": 0})
        assert (given.of_elsewhere("pods"), given.of_other_rules("pods")) == (ANY_VERSION, ANY_VERSION)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"digest": "a", "versions": {"x": "x"}}', b"\xff"])
async def test_a_row_that_cannot_be_read_is_none(tmp_path: Path, value: bytes) -> None:
    async with copies_in(tmp_path) as copies:
        await copies.access.write({TABLE: TableChanges({NAME: value})})
        kept = KeptVersions(copies)
        await kept.open()
        assert kept.last is None
        kept.keep(RulesEdit("a", {"pods": 5}))
        await written(copies, b'{"digest":"a","versions":{"pods":5},"former":{}}')


async def written(copies: DiskCopies, value: bytes) -> None:
    """Return once the disk holds this row."""
    while await copies.access.ask(lambda: copies.access.disk.value(TABLE, NAME)) != value:
        pass
