"""The database returns what was written: after a crash, on a full disk, and next to a damaged file."""

from __future__ import annotations

import ast
import contextlib
import re
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import cast

import pytest

from kube.disk.copy_rows import read_copy
from kube.disk.database import Cache, Disk, DiskError, SetAside, TableChanges, open_cache
from tests.kube.support.copied import change, full_copy, raws

ROOT = Path(__file__).parents[3]
STORM = """
import sys
from pathlib import Path
from kube.disk.copy_rows import METAS, read_metas
from kube.disk.database import Disk
from tests.kube.support.copied import full_copy
disk = Disk(Path(sys.argv[1]))
disk.open()
version = max([meta["version"] for meta in read_metas(disk.rows(METAS)).values()], default=0)
print("open", flush=True)
while True:
    version += 1
    # Each version has its number as every object's content and as the number of objects, so a torn copy shows.
    puts = {("ns", f"n{each}"): str(version).encode() * 400 for each in range(version % 20)}
    disk.write(full_copy("s", {"version": version}, puts))
"""


def test_tables_with_similar_names_are_separate(disk: Disk) -> None:
    disk.write({"table": TableChanges({"a": b"1", "b": b"2"}), "tab": TableChanges({"c": b"3"})})
    disk.write({"table": TableChanges({"a": None})})
    assert disk.rows("table") == {"b": b"2"}
    assert (disk.value("table", "b"), disk.value("table", "a")) == (b"2", None)
    disk.write({"tab": TableChanges({"d": b"4"}, replaces_all=True)})
    assert (disk.rows("tab"), disk.rows("table")) == ({"d": b"4"}, {"b": b"2"})


@pytest.mark.parametrize(("is_durable", "wanted"), [(False, ["t\0a"]), (True, [2, "t\0a", 1])])
def test_only_durable_writes_are_synced(tmp_path: Path, is_durable: bool, wanted: list[object]) -> None:
    """With `synchronous=NORMAL` a power cut once lost ten writes that clients had been told were accepted."""

    class Wrapped:
        """A diskcache with methods replaced by the test."""

        def __init__(self, folder: Path) -> None:
            self.cache = open_cache(folder)

        def __getattr__(self, name: str) -> object:
            return getattr(self.cache, name)

        def __len__(self) -> int:
            return len(self.cache)

        @classmethod
        def of(cls, folder: Path) -> Cache:
            return cast(Cache, cls(folder))

    noted: list[object] = []

    class Noting(Wrapped):
        def reset(self, key: str, value: int, *, update: bool) -> None:
            assert (key, update) == ("sqlite_synchronous", False)
            noted.append(value)
            self.cache.reset(key, value, update=update)

        def set(self, key: str, value: bytes) -> None:
            noted.append(key)
            self.cache.set(key, value)

    disk = Disk(tmp_path / "cache", Noting.of)
    disk.open()
    noted.clear()
    disk.write({"t": TableChanges({"a": b"1"})}, is_durable=is_durable)
    disk.close()
    assert noted == wanted


def test_nothing_private_of_diskcache_is_used(tmp_path: Path) -> None:
    with open_cache(tmp_path) as cache:
        private = {name for name in (*dir(cache), *dir(cache.disk)) if re.fullmatch(r"_[a-z]\w*", name)}
    assert {"_sql", "_disk", "_con"} <= private
    for module in (ROOT / "kube" / "disk").glob("*.py"):
        used = {
            node.attr for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not used & private, module


def test_only_the_owner_may_read_the_database(disk: Disk) -> None:
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"secret"}))
    assert stat.S_IMODE(disk.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in disk.folder.iterdir()}
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize("garbage", [b"no database at all" * 500, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_corrupt_database_file_is_moved_aside(disk: Disk, garbage: bytes) -> None:
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"x"}))
    disk.close()
    for path in disk.folder.iterdir():
        path.write_bytes(garbage)
    disk.open()
    assert read_copy(disk, "s") is None
    disk.write(full_copy("s", {"version": 2}, {("a", "1"): b"y"}))
    assert raws(disk) == [b"y"]
    assert (disk.folder.parent / "cache.unreadable" / "cache.db").exists()


def test_a_database_of_another_format_is_moved_aside(disk: Disk) -> None:
    disk.close()
    with open_cache(disk.folder) as cache:
        cache.set("format", b"1")
    disk.open()
    assert disk.lost == 1
    assert (disk.folder.parent / "cache.unreadable").exists()


@pytest.mark.parametrize("how", ["another format", "damaged"])
def test_tables_to_be_preserved_are_copied_to_the_new_database(tmp_path: Path, how: str) -> None:
    saved = Disk(tmp_path / "cache", saved=("journal",))
    rows = {f"n{each}": b"%d" % each * 300 for each in range(40)}
    saved.write({"journal": TableChanges(rows), "other": TableChanges(rows)})
    saved.close()
    if how == "damaged":
        path = tmp_path / "cache" / "cache.db"
        content = bytearray(path.read_bytes())
        content[4096 * 3 : 4096 * 4] = b"\xa5" * 4096
        path.write_bytes(content)
    else:
        with open_cache(tmp_path / "cache") as cache:
            cache.set("format", b"1")
    found = saved.rows("journal")
    assert found.items() <= rows.items()
    assert len(found) > len(rows) / 2 if how == "damaged" else found == rows
    assert (tmp_path / "cache.unreadable").exists()
    assert not saved.rows("other")
    saved.close()


def test_a_crash_while_the_database_is_moved_aside_loses_nothing(tmp_path: Path) -> None:
    saved = Disk(tmp_path / "cache")
    saved.write({"journal": TableChanges({"n": b"1"})})
    saved.close()
    (tmp_path / "cache").rename(tmp_path / "cache.new")
    assert saved.rows("journal") == {"n": b"1"}
    saved.close()


def test_a_database_that_cannot_be_opened_is_an_error_and_is_retried(tmp_path: Path) -> None:
    broken = [True]

    def opener(folder: Path) -> Cache:
        if broken[0]:
            raise OSError(30, "Read-only file system")
        return open_cache(folder)

    disk = Disk(tmp_path / "cache", opener)
    with pytest.raises(DiskError, match="Read-only"):
        disk.open()
    broken[0] = False
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"x"}))
    assert raws(disk) == [b"x"]
    disk.close()


@pytest.mark.timeout(180)
def test_every_copy_is_complete_after_kills_during_many_writes(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    last = 0
    for number in range(50):
        with subprocess.Popen([sys.executable, "-c", STORM, str(folder)], stdout=subprocess.PIPE) as storm:
            assert storm.stdout is not None
            assert storm.stdout.readline() == b"open\n"
            time.sleep((number * 7 % 40) / 1000)
            storm.send_signal(signal.SIGKILL)
        disk = Disk(folder)
        disk.open()
        read = read_copy(disk, "s")
        if read is not None:
            version = read[0]["version"]
            assert version >= last
            last = version
            assert sorted(read[1]) == [str(version).encode() * 400] * (version % 20)
        disk.close()
    assert last > 50
    assert not (tmp_path / "cache.unreadable").exists()


@pytest.mark.timeout(120)
def test_damaged_files_give_unchanged_rows_or_none(tmp_path: Path) -> None:
    def damage(folder: Path, random: Random) -> None:
        """Damage one of the files, like a bad disk or a bad shutdown."""
        path = random.choice([each for each in folder.iterdir() if each.stat().st_size])
        content = bytearray(path.read_bytes())
        page = random.randrange(0, len(content), 4096)
        match random.choice(["page", "zeros", "bits", "short", "header", "swap"]):
            case "page":
                content[page : page + 4096] = random.randbytes(len(content[page : page + 4096]))
            case "zeros":
                content[page : page + 4096] = bytes(len(content[page : page + 4096]))
            case "bits":
                for _ in range(20):
                    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
            case "short":
                del content[random.randrange(len(content)) :]
            case "header":
                content[:100] = random.randbytes(100)
            case "swap":
                other = random.randrange(0, len(content), 4096)
                content[page : page + 4096], content[other : other + 4096] = (
                    content[other : other + 4096],
                    content[page : page + 4096],
                )
        path.write_bytes(content)

    stored: dict[str, list[bytes]] = {}
    original = Disk(tmp_path / "cache")
    for source in ("s", "t", "u"):
        puts = {("ns", f"n{each}"): f"{source}{each}".encode() * 200 for each in range(60)}
        original.write(full_copy(source, {"version": 7}, puts))
        stored[source] = sorted(puts.values())
    log = (tmp_path / "cache" / "cache.db-wal").read_bytes()
    original.close()
    shown = 0
    for seed in range(200):
        random = Random(seed)
        shutil.copytree(tmp_path / "cache", tmp_path / "damaged", dirs_exist_ok=True)
        if seed % 2:
            (tmp_path / "damaged" / "cache.db-wal").write_bytes(log)
        damage(tmp_path / "damaged", random)
        disk = Disk(tmp_path / "damaged")
        for source, rows in stored.items():
            read = read_copy(disk, source)
            if read is not None:
                shown += 1
                assert (read[0]["version"], sorted(read[1])) == (7, rows), f"seed {seed}"
        disk.rows("table")
        # Damage may be detected at the write: then a new database is created, and the next write works.
        with contextlib.suppress(SetAside):
            disk.write(full_copy("new", {"version": 1}, {("a", "1"): b"x"}))
        disk.write(full_copy("new", {"version": 1}, {("a", "1"): b"x"}))
        assert raws(disk, "new") == [b"x"]
        disk.close()
        shutil.rmtree(tmp_path / "damaged")
    assert shown > 100


def test_a_locked_database_is_an_error_after_a_timeout_and_loses_nothing(disk: Disk) -> None:
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"x"}))
    other = sqlite3.connect(disk.folder / "cache.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DiskError, match="locked"):
        disk.write(change(2, {("a", "1"): b"y"}, 1))
    # Meanwhile existing rows can be read, also by a hub that starts.
    started = Disk(disk.folder)
    for each in (disk, started):
        assert raws(each) == [b"x"]
    with pytest.raises(DiskError, match="locked"):
        started.write(change(2, {("a", "1"): b"z"}, 1))
    started.close()
    other.execute("ROLLBACK")
    other.close()
    disk.write(change(2, {("a", "1"): b"y"}, 1))
    assert raws(disk) == [b"y"]
