"""How the rows of the store are read, and the way to read it when it cannot be written: on a full or read-only disk.

SQLite opens a store in WAL only where it can write, or finds the log and its index. What a clean end leaves has
neither, and is read as a file that nobody changes. With a log that is not empty that would be wrong: the newest rows
are in it, and the database may be half-way to them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diskcache

BUSY_TIMEOUT = 1.0
"""Seconds to wait for SQLite's lock, which nobody else should hold."""
LAST = "\U0010ffff"
"""What no name has: the end of the keys that begin alike."""


class Values(diskcache.Disk):  # type: ignore[misc]  # the package ships no types
    """Values are bytes in the database: a damaged row that claims to be a pickle or a file is not followed."""

    def get(self, key: object, raw: int) -> str:
        if not raw or not isinstance(key, str):
            raise ValueError("a key is no text")
        return key

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> object:
        if mode != diskcache.core.MODE_RAW or filename is not None:
            raise ValueError(f"a value is of mode {mode}")
        return super().fetch(mode, filename, value, read)


class Rows:
    """What diskcache has no quick way to: its own through the keys takes a second for 50,000, and one question to
    SQLite for each value another one.
    """

    _sql: Any
    """Runs a statement on the connection."""
    _disk: Any
    """Tells what a row's key and value are."""

    def all_keys(self) -> Iterator[str]:
        for key, raw in self._sql("SELECT key, raw FROM Cache"):
            yield self._disk.get(key, raw)

    def rows(self, prefix: str) -> Iterator[tuple[str, object]]:
        """The keys that begin so, with their values."""
        columns = "SELECT key, raw, mode, filename, value FROM Cache WHERE key >= ? AND key < ?"
        for key, raw, mode, filename, value in self._sql(columns, (prefix, prefix + LAST)):
            yield self._disk.get(key, raw), self._disk.fetch(mode, filename, value, False)


class Reading(Rows):
    """A store open to be read and nothing else. sqlite3.Error when that cannot be done either.

    It is to be closed before anything is written: it may not notice.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = _connected(folder / diskcache.core.DBNAME)
        self._sql = self._connection.execute
        self._disk = Values(str(folder))

    def get(self, key: str) -> object:
        """The value of a key; None when there is none."""
        return next((value for found, value in self.rows(key) if found == key), None)

    def close(self) -> None:
        self._connection.close()


def _connected(database: Path) -> sqlite3.Connection:
    try:
        # An index that a full disk, or a power cut, left too short is not mended but made in memory.
        return _connection(database, "mode=ro&readonly_shm=1")
    except sqlite3.OperationalError:
        log = database.with_name(database.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _connection(database, "mode=ro&immutable=1")


def _connection(database: Path, how: str) -> sqlite3.Connection:
    uri = f"{database.absolute().as_uri()}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
