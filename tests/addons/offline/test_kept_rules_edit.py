"""The last edit of the rules on disk, for the next process."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.offline.copies import DiskCopies
from addons.offline.kept_rules_edit import NAME, TABLE, KeptRulesEdit
from addons.rules.edits import RulesEdit
from kube.store.store import Store
from tests.addons.support.copying import CODEC, PODS, copies_in, pod, settled


async def test_the_next_process_finds_the_last_edit(tmp_path: Path) -> None:
    async with copies_in(tmp_path) as copies:
        kept = KeptRulesEdit(copies)
        await kept.open()
        assert kept.last is None
        kept.keep(RulesEdit("a", 5))
        kept.keep(RulesEdit("b", 7))
        await written(copies, b'{"digest":"b","version":7}')
    async with copies_in(tmp_path) as copies:
        kept = KeptRulesEdit(copies)
        await kept.open()
        assert kept.last == RulesEdit("b", 7)


async def test_the_next_process_knows_the_newest_copy(tmp_path: Path) -> None:
    """An earlier process may have given the version of any copy."""
    async with copies_in(tmp_path) as copies:
        store = Store()
        copy = copies.copy("", PODS, store)
        store.replace(CODEC, "v1", "Pod", 50, [pod("a", 3)])
        await settled(copy)
    async with copies_in(tmp_path) as copies:
        kept = KeptRulesEdit(copies)
        assert kept.newest_copy == 0
        await kept.open()
        assert kept.newest_copy == 50


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"digest": "a", "version": "x"}', b"\xff"])
async def test_a_row_that_cannot_be_read_is_none(tmp_path: Path, value: bytes) -> None:
    async with copies_in(tmp_path) as copies:
        await copies.write(lambda: copies.disk.put(TABLE, {NAME: value}))
        kept = KeptRulesEdit(copies)
        await kept.open()
        assert kept.last is None
        kept.keep(RulesEdit("a", 5))
        await written(copies, b'{"digest":"a","version":5}')


async def written(copies: DiskCopies, value: bytes) -> None:
    """Return once the disk holds this row."""
    while await copies.ask(lambda: copies.disk.value(TABLE, NAME)) != value:
        pass
