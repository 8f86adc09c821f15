"""The files before SQLite opens them: private, a database, not locked, and on a disk that takes something."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kube.disk.files import check, make_private, try_to_write
from tests.cloud.small_disk import SmallDisk


def test_what_others_could_read_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "cache"
    folder.mkdir(parents=True, mode=0o755)
    (folder / "db").touch(mode=0o644)
    make_private(folder, folder / "db")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "db")] == [0o700, 0o600]


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"x")
    make_private(tmp_path, tmp_path / "db")
    assert (tmp_path / "db").read_bytes() == b"x"


def test_what_is_no_database_fails(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        check(tmp_path / "db", 0)


def test_a_locked_database_fails(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            check(tmp_path / "db", 0)


@pytest.mark.parametrize("breaks", [SmallDisk.fill, SmallDisk.make_read_only])
def test_a_disk_that_takes_nothing_fails(small_disk: SmallDisk, breaks: Callable[[SmallDisk], None]) -> None:
    try_to_write(small_disk.seen)
    assert not list(small_disk.seen.iterdir())
    breaks(small_disk)
    with pytest.raises(OSError, match=r"No space|Read-only"):
        try_to_write(small_disk.seen)
