"""A database on a disk that is really full or read-only: read as it is, and used as usual once it is writable."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.cloud.small_disk import SmallDisk

ROOT = Path(__file__).parents[3]
USER = """
import json, sys
from pathlib import Path
from kube.disk.copy_rows import read_copy
from kube.disk.database import TableChanges, Disk, DiskError
from tests.kube.support.copied import full_copy
disk = Disk(Path(sys.argv[1]))

def do(command, number):
    match command:
        case "write":
            puts = {("ns", f"n{each}"): str(number).encode() * 400 for each in range(number)}
            value = {"table": TableChanges({"name": str(number).encode()})}
            disk.write({**full_copy("s", {"version": number}, puts), **value})
        case "open":
            disk.open()
        case "close":
            disk.close()
            return None
    read = read_copy(disk, "s")
    values = disk.rows("table")
    assert disk.value("table", "name") == values.get("name")
    return read and [read[0]["version"], len(read[1]), len(set(read[1])), values["name"].decode()], disk.lost

for line in sys.stdin:
    command, number = line.split()
    try:
        print(json.dumps(do(command, int(number))), flush=True)
    except DiskError as error:
        print(json.dumps(str(error)), flush=True)
"""
"""A program that executes commands on a database, and prints the state after each: version, objects, kinds, a value."""


class User:
    """A process on the small disk with an open database."""

    def __init__(self, disk: SmallDisk) -> None:
        command = (*disk.inside, sys.executable, "-c", USER, str(disk.folder / "cache"))
        self._process = subprocess.Popen(
            command,
            env={"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, command: str, number: int = 0) -> Any:
        """Send a command; return the response. A string is a DiskError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command} {number}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def complete_copy_of(version: int) -> object:
    """Return the output line for a complete copy: so many objects, all of one kind, and none lost."""
    return [[version, version, 1, str(version)], 0]


type Fault = tuple[Callable[[SmallDisk], None], Callable[[SmallDisk], None], str]
FAULTS: dict[str, Fault] = {
    "full": (SmallDisk.fill, SmallDisk.free_space, "full|disk I/O error|No space"),
    "read-only": (SmallDisk.make_read_only, SmallDisk.make_writable, "Read-only|readonly"),
}
"""The commands that damage a disk and repair it, and the error message."""


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Fault:
    found: Fault = FAULTS[request.param]
    return found


def keep(disk: SmallDisk, version: int, *, closed: bool) -> None:
    """Write a copy by a process that ends, or is killed."""
    with User(disk) as user:
        assert user.send("write", version) == complete_copy_of(version)
        if closed:
            user.send("close")
    assert (log_size(disk) == 0) == closed


def log_size(disk: SmallDisk) -> int:
    log = disk.seen / "cache" / "cache.db-wal"
    return log.stat().st_size if log.exists() else 0


def overwrite(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("closed", [True, False])
def test_a_copy_on_a_failing_disk_is_read_and_written_again_once_it_works(
    small_disk: SmallDisk, fault: Fault, closed: bool
) -> None:
    breaks, mends, said = fault
    keep(small_disk, 7, closed=closed)
    breaks(small_disk)
    with User(small_disk) as user:
        assert user.send("open") == complete_copy_of(7)
        for _ in range(2):
            assert re.search(said, user.send("write", 8))
            assert user.send("read") == complete_copy_of(7)
        mends(small_disk)
        assert user.send("read") == complete_copy_of(7)
        assert user.send("write", 9) == complete_copy_of(9)
    with User(small_disk) as user:
        assert user.send("open") == complete_copy_of(9)


def test_a_database_on_a_disk_that_becomes_full_is_still_read(small_disk: SmallDisk) -> None:
    with User(small_disk) as user:
        assert user.send("write", 7) == complete_copy_of(7)
        small_disk.fill()
        assert re.search("full|I/O", user.send("write", 5000))
        assert user.send("read") == complete_copy_of(7)
        small_disk.free_space()
        assert user.send("write", 8) == complete_copy_of(8)


def test_an_unreadable_database_is_moved_aside_once_the_disk_is_writable(
    small_disk: SmallDisk, fault: Fault
) -> None:
    breaks, mends, _ = fault
    keep(small_disk, 7, closed=True)
    overwrite(small_disk.seen / "cache" / "cache.db", b"SQLite format 3", b"no such format.")
    breaks(small_disk)
    with User(small_disk) as user:
        for command in ("open", "write"):
            assert isinstance(user.send(command), str)
        assert not (small_disk.seen / "cache.unreadable").exists()
        mends(small_disk)
        assert user.send("open") == [None, 1]
        assert (small_disk.seen / "cache.unreadable" / "cache.db").exists()
        assert user.send("write", 8)[0] == [8, 8, 1, "8"]


def test_a_database_with_an_unreadable_log_is_not_read(small_disk: SmallDisk) -> None:
    keep(small_disk, 7, closed=True)
    keep(small_disk, 8, closed=False)
    # SQLite always processes a log; without its index, and where none can be created, it cannot be read.
    (small_disk.seen / "cache" / "cache.db-shm").unlink()
    small_disk.make_read_only()
    with User(small_disk) as user:
        assert isinstance(user.send("open"), str)
        small_disk.make_writable()
        assert user.send("open") == complete_copy_of(8)


def test_an_empty_wal_index_is_rebuilt_without_disk_space(small_disk: SmallDisk, fault: Fault) -> None:
    breaks, _, _ = fault
    keep(small_disk, 7, closed=False)
    os.truncate(small_disk.seen / "cache" / "cache.db-shm", 0)
    breaks(small_disk)
    with User(small_disk) as user:
        assert user.send("open") == complete_copy_of(7)


def test_a_damaged_value_is_not_returned(small_disk: SmallDisk) -> None:
    keep(small_disk, 7, closed=True)
    overwrite(small_disk.seen / "cache" / "cache.db", b"7" * 400, b"7" * 399 + b"8")
    small_disk.make_read_only()
    with User(small_disk) as user:
        assert user.send("open") == [None, 0]


def test_a_missing_database_is_created_once_the_disk_is_writable(small_disk: SmallDisk, fault: Fault) -> None:
    breaks, mends, said = fault
    breaks(small_disk)
    with User(small_disk) as user:
        assert re.search(said, user.send("open"))
        mends(small_disk)
        assert user.send("write", 8) == complete_copy_of(8)
