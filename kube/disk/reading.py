"""SQL queries that diskcache lacks. diskcache does all writes.

- Rows by key prefix: diskcache reads all keys. To read 500 of 50,000 rows of 1 KB, diskcache takes 1.2 s of CPU, this
  module 2 ms; to read all of them, diskcache takes 1.8 s and 60 MB, this module 0.17 s and 2 MB. To write 5,000 rows,
  diskcache takes 0.1 s, plain SQL half of that.
- A full or read-only disk: diskcache writes its settings whenever it opens a store. SQLite opens a WAL database only
  if it can write, or finds the log and its index; a clean exit removes both. `Reading` then opens the database as an
  immutable file, unless the log has content, because the log has the newest rows.
- A store that another process has locked: diskcache waits for a minute.
- The readable rows of a damaged store: diskcache stops at the first damaged page.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection
from pathlib import Path

import diskcache

from kube.disk.rows import checked

BUSY_TIMEOUT = 1.0
"""Seconds to wait for SQLite's lock, which no other process should hold."""
PAGE_CACHE = 64
"""Pages of 4 KB in a connection's cache: few, because the hub reads and writes each copy once. With 512 pages, the
two connections took 4 MB at the first list."""
SALVAGE_QUERY = "SELECT key, value FROM Cache NOT INDEXED ORDER BY rowid"
LAST_CHARACTER = "\U0010ffff"
"""Sorts after every character of a name, so it ends the range of keys with one prefix."""


class Reading:
    """A store opened for reading. sqlite3.Error if the store is unreadable.

    Close it before the store is opened for writing, because an immutable connection does not notice changes.
    """

    def __init__(self, folder: Path) -> None:
        self._connection = connected(folder / diskcache.core.DBNAME)

    def rows(self, prefix: str) -> dict[str, bytes | None]:
        """The keys with this prefix and their values; None for a damaged value."""
        rows = self._connection.execute(
            "SELECT key, value FROM Cache WHERE key >= ? AND key < ?", (prefix, prefix + LAST_CHARACTER)
        )
        return {key: checked(key, value) for key, value in rows}

    def keys(self, prefix: str) -> list[str]:
        """The keys with this prefix."""
        rows = self._connection.execute(
            "SELECT key FROM Cache WHERE key >= ? AND key < ?", (prefix, prefix + LAST_CHARACTER)
        )
        return [key for (key,) in rows]

    def get(self, key: str) -> bytes | None:
        """The value of a key; None if the key is absent or the value damaged."""
        for (value,) in self._connection.execute("SELECT value FROM Cache WHERE key = ?", (key,)).fetchall():
            return checked(key, value)
        return None

    def close(self) -> None:
        self._connection.close()


def connected(database: Path) -> sqlite3.Connection:
    """Open a read-only connection. sqlite3.Error if the store cannot be read without writing to it."""
    try:
        # readonly_shm: SQLite builds the log's index in memory where a full disk or a power cut left it too short.
        return _connection(database, "mode=ro&readonly_shm=1")
    except sqlite3.OperationalError:
        log = database.with_name(database.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _connection(database, "mode=ro&immutable=1")


def _connection(database: Path, how: str) -> sqlite3.Connection:
    if not database.is_file():
        raise sqlite3.OperationalError("there is no such file")  # Opening a FIFO would block SQLite
    uri = f"{database.absolute().as_uri()}?{how}"
    # Several threads use it, one after another: the disk's thread, and the one that ends the process.
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute(f"PRAGMA cache_size = {PAGE_CACHE}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def check_lock(database: Path) -> None:
    """Raise sqlite3.Error if the file is no database, or is locked."""
    with contextlib.closing(
        sqlite3.connect(database, timeout=BUSY_TIMEOUT, isolation_level=None)
    ) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def salvaged(database: Path, prefixes: Collection[str]) -> dict[str, bytes]:
    """All undamaged values whose keys have one of these prefixes, read around each damaged page."""
    rows: dict[str, bytes] = {}
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connected(database)) as connection:
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        for statement in (SALVAGE_QUERY, f"{SALVAGE_QUERY} DESC"):
            with contextlib.suppress(sqlite3.Error):
                for key, value in connection.execute(statement):
                    if isinstance(key, str) and key.startswith(tuple(prefixes)):
                        intact = checked(key, value)
                        rows |= {} if intact is None else {key: intact}
    return rows
