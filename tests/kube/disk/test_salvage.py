"""Salvage reads all rows of a damaged database except those on damaged pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.disk.database import Disk, TableChanges
from kube.disk.reading import salvaged
from kube.disk.rows import END, table_of

PREFIX = table_of("t") + END
VALUES = {f"n{each:02d}": b"%d" % each * 400 for each in range(60)}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    disk = Disk(tmp_path / "cache")
    disk.write({table_of("t"): TableChanges(VALUES), table_of("other"): TableChanges({"x": b"y"})})
    disk.close()
    return tmp_path / "cache" / "cache.db"


def names(database: Path) -> set[str]:
    found = salvaged(database, [PREFIX])
    assert all(VALUES[key.removeprefix(PREFIX)] == value for key, value in found.items())
    return {key.removeprefix(PREFIX) for key in found}


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_a_damaged_page_loses_only_its_own_rows(database: Path, share: float) -> None:
    content = bytearray(database.read_bytes())
    page = 4096
    at = int(len(content) * share) // page * page
    content[at : at + page] = b"\xa5" * page
    database.write_bytes(content)
    assert len(VALUES) - len(names(database)) < 12


@pytest.mark.parametrize("content", [b"", b"no database" * 500, None])
def test_a_file_that_is_no_database_gives_no_rows(database: Path, content: bytes | None) -> None:
    database.unlink()
    if content is not None:
        database.write_bytes(content)
    assert names(database) == set()
