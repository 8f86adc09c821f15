"""The database that survives a restart: tables of named values in one diskcache (SQLite in WAL mode).

All calls block, so only the thread of `kube.disk.writer` makes them. diskcache creates and writes the file;
`kube.disk.reading` has the queries that diskcache lacks.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn, SupportsBytes

import diskcache

from kube.disk.reading import BUSY_TIMEOUT, PAGE_CACHE, Reading, check_lock, salvaged
from kube.disk.rows import END, checksum, join

FORMAT = b"2"
"""The version of the keys and values. A store with another version is moved aside."""
SIZE_LIMIT = 1 << 62
"""Bytes, more than any disk has. With eviction off, diskcache must never consider the store full."""
LOG_LIMIT = 16 * 1024 * 1024
"""Bytes to which SQLite truncates its write-ahead log after a large list."""
UNREADABLE = frozenset(
    {
        *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA),
        *(sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE),
    }
)
"""SQLite's errors for an unreadable file. Every other error (full, locked, read-only) may be temporary."""
NORMAL, FULL = 1, 2
"""SQLite's `synchronous`: with NORMAL, a power cut may lose the last transactions; with FULL, none."""

PAGE = 4096
"""Bytes that a file system allocates at once."""

_FORMAT_KEY = "format"

logger = logging.getLogger(__name__)


class DiskError(Exception):
    """The store cannot be read or written now: full, read-only, broken. Its content is unchanged."""


class SetAside(DiskError):
    """The store was unreadable. It was moved aside and replaced by an empty one."""


class TableChanges(NamedTuple):
    """The changes of a batch to one table. None deletes a row. `replaces_all` deletes all rows that the changes do not
    name.

    A value may be compressed in memory. The writer decompresses one value at a time.
    """

    rows: Mapping[str, SupportsBytes | None]
    replaces_all: bool = False


type Batch = Mapping[str, TableChanges]
"""The changes of one transaction, by table."""


class Cache(diskcache.Cache):  # type: ignore[misc]  # the package ships no types
    """A diskcache that closes its connection when opening fails."""

    def __init__(self, folder: Path, **settings: object) -> None:
        try:
            super().__init__(str(folder), **settings)
        except BaseException:
            self.close()
            raise


def open_cache(folder: Path) -> Cache:
    """A diskcache without eviction, culling, or files beside the database."""
    return Cache(
        folder,
        timeout=BUSY_TIMEOUT,
        eviction_policy="none",
        cull_limit=0,
        size_limit=SIZE_LIMIT,
        disk_min_file_size=1 << 30,
        statistics=0,
        sqlite_journal_mode="wal",
        sqlite_synchronous=NORMAL,
        sqlite_cache_size=PAGE_CACHE,
        sqlite_journal_size_limit=LOG_LIMIT,
        # No memory mapping: a bad sector under a mapped page would kill the hub by SIGBUS, at each start.
        sqlite_mmap_size=0,
    )


class Disk:
    """The store in `folder`. The first call opens it; after a failure, the next call tries again.

    Reads also work on a store that cannot be written. The next write tries again to open it for writing.
    """

    def __init__(
        self,
        folder: Path,
        opener: Callable[[Path], Cache] = open_cache,
        saved: Collection[str] = (),
    ) -> None:
        """Set the tables `saved`, whose readable rows are copied to the new store when a damaged store is moved
        aside."""
        self.folder = folder
        self._fresh = folder.with_name(folder.name + ".new")
        self._saved = saved
        self._opener = opener
        self._cache: Cache | None = None
        """The connection for writing, if it is open."""
        self._reading: Reading | None = None
        self.lost = 0
        """The number of stores that were moved aside, with all that was written to them."""

    def open(self) -> None:
        """Open the store, and move an unreadable one aside. DiskError if there is no usable disk."""
        self._asked(lambda _: None)

    def close(self) -> None:
        for opened in (self._reading, self._cache):
            if opened is not None:
                opened.close()
        self._cache, self._reading = None, None

    def rows(self, table: str) -> dict[str, bytes | None]:
        """All rows of a table, by name; None for a damaged value."""
        prefix = table + END
        rows = self._asked(lambda reading: reading.rows(prefix))
        damaged = sum(value is None for value in rows.values())
        if damaged:
            logger.error("%d values of %s in %s are damaged", damaged, table.replace(END, " "), self.folder)
        return {key[len(prefix) :]: value for key, value in rows.items()}

    def value(self, table: str, name: str) -> bytes | None:
        """One row; None if it is absent or damaged."""
        return self._asked(lambda reading: reading.get(join(table, name)))

    def write(self, batch: Batch, *, is_durable: bool = False) -> None:
        """Write a batch in one transaction. DiskError if it fails; then no row has changed.

        `is_durable` calls fsync, so that no later power cut loses this batch or an earlier one.
        """
        self._writable(lambda *_: None)

        def transaction(reading: Reading, cache: Cache) -> None:
            rows: dict[str, SupportsBytes | None] = {}
            for table, changes in batch.items():
                if changes.replaces_all:
                    rows |= dict.fromkeys(reading.keys(table + END))
                rows |= {join(table, name): value for name, value in changes.rows.items()}
            if is_durable:
                cache.reset("sqlite_synchronous", FULL, update=False)
            with cache.transact():
                for key, value in rows.items():
                    if value is None:
                        cache.delete(key)
                    else:
                        _set(cache, key, bytes(value))
            if is_durable:
                cache.reset("sqlite_synchronous", NORMAL, update=False)

        self._guarded(transaction)

    def _asked[T](self, work: Callable[[Reading], T]) -> T:
        """Run a read, also on a store that cannot be written."""
        if self._cache is None and self._reading is not None:
            return self._unwritable(work)
        try:
            return self._writable(lambda reading, _: work(reading))
        except DiskError:
            with contextlib.suppress(DiskError):
                return self._unwritable(work)
            raise

    def _unwritable[T](self, work: Callable[[Reading], T]) -> T:
        """Run a read on a store opened for reading only. DiskError if the store is unreadable; it is not moved
        aside."""
        try:
            if self._reading is None:
                self._reading = Reading(self.folder)
                _check_format(self._reading)
            return work(self._reading)
        except Exception as error:
            self.close()
            raise DiskError(f"{self.folder}: {error}") from error

    def _writable[T](self, work: Callable[[Reading, Cache], T]) -> T:
        """Run a write, and run it again on an empty store if this one was unreadable and moved aside."""
        with contextlib.suppress(SetAside):
            return self._guarded(work)
        return self._guarded(work)

    def _guarded[T](self, work: Callable[[Reading, Cache], T]) -> T:
        """Run a call on the open store. DiskError if it fails, SetAside if the store is unreadable."""
        try:
            if self._cache is None or self._reading is None:
                self._reading, self._cache = self._opened()
            return work(self._reading, self._cache)
        except Exception as error:
            # Every exception is caught here: diskcache raises many kinds for damaged tables.
            # A failed commit leaves its transaction open until the connection closes.
            self.close()
            # The first error has the cause. diskcache raises its own over it, or that of a failed ROLLBACK.
            cause = _first(error)
            if _is_unreadable(cause):
                self._set_aside(cause)
            raise DiskError(f"{self.folder}: {cause}") from error

    def _opened(self) -> tuple[Reading, Cache]:
        """Open the store for writing, with a second connection for reading."""
        self.close()
        if self._fresh.exists() and not self.folder.exists():
            self._fresh.rename(self.folder)  # a crash between the two renames of `_set_aside`
        database = self.folder / diskcache.core.DBNAME
        make_private(self.folder, database)
        check_lock(database)
        with contextlib.ExitStack() as opened:
            cache = opened.enter_context(contextlib.closing(self._opener(self.folder)))
            reading = opened.enter_context(contextlib.closing(Reading(self.folder)))
            if len(cache) == 0 and reading.get(_FORMAT_KEY) is None:
                _set(cache, _FORMAT_KEY, FORMAT)
            _check_format(reading)
            opened.pop_all()
        return reading, cache

    def _set_aside(self, error: BaseException) -> NoReturn:
        aside = self.folder.with_name(self.folder.name + ".unreadable")
        try:
            try_to_write(self.folder.parent)
            shutil.rmtree(self._fresh, ignore_errors=True)
            self._save()
            shutil.rmtree(aside, ignore_errors=True)
            self.folder.rename(aside)
            self._fresh.rename(self.folder)
        except (OSError, sqlite3.Error, diskcache.Timeout) as again:
            raise DiskError(f"{self.folder}: {error}; {again}") from error
        logger.error("the store %s cannot be read (%s); it is now %s", self.folder, error, aside)
        self.lost += 1
        raise SetAside(f"{self.folder}: {error}") from error

    def _save(self) -> None:
        """Make the new store, and copy the readable rows of the tables `saved` to it."""
        make_private(self._fresh, self._fresh / diskcache.core.DBNAME)
        rows = salvaged(self.folder / diskcache.core.DBNAME, [table + END for table in self._saved])
        with open_cache(self._fresh) as fresh:
            fresh.reset("sqlite_synchronous", FULL, update=False)
            with fresh.transact():
                for key, value in {_FORMAT_KEY: FORMAT, **rows}.items():
                    _set(fresh, key, value)
        if rows:
            logger.warning("%d values of %s moved to a new store", len(rows), self.folder)


def _first(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _is_unreadable(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        # The low byte is the error, the rest its kind. Errors of the Python module itself have no code.
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in UNREADABLE
    return not isinstance(error, OSError | diskcache.Timeout | MemoryError)


def _check_format(reading: Reading) -> None:
    written = reading.get(_FORMAT_KEY)
    if written != FORMAT:
        raise ValueError(f"its format is {written!r}, this hub's is {FORMAT!r}")


def _set(cache: Cache, key: str, value: bytes) -> None:
    cache.set(key, checksum(key, value) + value)


def make_private(folder: Path, database: Path) -> None:
    """Restrict the files to their owner. Creates the database, because SQLite gives its other files the same mode."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    os.close(os.open(database, os.O_CREAT | os.O_RDWR, 0o600))
    database.chmod(0o600)


def try_to_write(folder: Path) -> None:
    """Raise OSError if no file can be written in the folder. Leaves no file behind."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(PAGE))
