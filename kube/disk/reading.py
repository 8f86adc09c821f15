"""Reads rows of the store, also on a full or read-only disk, where the store cannot be written.

SQLite opens a store in WAL mode only where it can write, or finds the log and its index. A process that ends cleanly
leaves neither. `Reading` then opens the database as an immutable file. It does not where the log has content, because
the log has the newest rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diskcache

BUSY_TIMEOUT = 1.0
"""Seconds to wait for SQLite's lock, which no other process should hold."""
LAST = "\U0010ffff"
"""Sorts behind each character of a name, so it ends the range of keys with one prefix."""


class Values(diskcache.Disk):  # type: ignore[misc]  # the package ships no types
    """Values are bytes in the database. A damaged row that claims to be a pickle or a file is refused."""

    def get(self, key: object, raw: int) -> str:
        if not raw or not isinstance(key, str):
            raise ValueError("a key is no text")
        return key

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> object:
        if mode != diskcache.core.MODE_RAW or filename is not None:
            raise ValueError(f"a value is of mode {mode}")
        return super().fetch(mode, filename, value, read)


class Rows:
    """Reads many rows by one statement. diskcache needs a second to list 50,000 keys, and another for their values."""

    _sql: Any
    """Runs a statement on the connection."""
    _disk: Any
    """Converts a row's columns to key and value."""

    def all_keys(self) -> Iterator[str]:
        for key, raw in self._sql("SELECT key, raw FROM Cache"):
            yield self._disk.get(key, raw)

    def rows(self, prefix: str) -> Iterator[tuple[str, object]]:
        """The keys with this prefix, and their values."""
        columns = "SELECT key, raw, mode, filename, value FROM Cache WHERE key >= ? AND key < ?"
        for key, raw, mode, filename, value in self._sql(columns, (prefix, prefix + LAST)):
            yield self._disk.get(key, raw), self._disk.fetch(mode, filename, value, False)


class Reading(Rows):
    """A store opened for reading. sqlite3.Error when it cannot be read either.

    Close it before anything is written: it may not notice the change.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = connected(folder / diskcache.core.DBNAME)
        self._sql = self._connection.execute
        self._disk = Values(str(folder))

    def get(self, key: str) -> object:
        """The value of a key; None when there is none."""
        return next((value for found, value in self.rows(key) if found == key), None)

    def close(self) -> None:
        self._connection.close()


def connected(database: Path) -> sqlite3.Connection:
    """A connection that only reads; sqlite3.Error when the store cannot be read so."""
    try:
        # readonly_shm: SQLite builds the log's index in memory where a full disk or a power cut left it too short.
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
