"""What outlives a restart: copies of sources and other named values, in one diskcache store (SQLite, WAL).

All calls block and belong to one thread, `kube.disk.writer`'s. A list and the version it is of are written in one
transaction, so that a crash leaves a copy that the cloud really had. Each value carries its checksum, because SQLite
does not notice that a disk has changed what is in a row.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import diskcache
import orjson

from kube.disk.files import check, make_private, try_to_write
from kube.disk.reading import BUSY_TIMEOUT, Reading, Rows, Values

FORMAT = b"2"
"""Of the keys and values below. A store of another format is set aside, not guessed at."""
SIZE_LIMIT = 1 << 62
"""Bytes: none. With eviction off diskcache must never think that it is full."""
PAGE_CACHE = 512
"""Pages (of 4 KB) that SQLite keeps in memory: a copy is written as a whole and read once."""
LOG_LIMIT = 16 * 1024 * 1024
"""Bytes that SQLite's log keeps once a large list went through it."""
UNREADABLE = frozenset(
    {
        *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA),
        *(sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE),
    }
)
"""What SQLite says of a file that it does not understand. All else (full, locked, read-only) may pass."""
_CHECKSUM_SIZE = 4

_FORMAT_KEY = "format"
_META, _OBJECT, _VALUE = "m", "o", "v"
_END = "\x00"
"""Between the parts of a key: names of Kubernetes objects have none."""

logger = logging.getLogger(__name__)

Key = tuple[str, str]
Meta = dict[str, Any]


class NotKept(Exception):
    """A change of a copy that is not there: the source must be written whole."""


class DiskError(Exception):
    """The store cannot be read or written now: full, read-only, broken. What was there before is as it was."""


class SetAside(DiskError):
    """The store could not be understood, and there is an empty one in its place."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What changed in one source's copy. `whole`: `puts` are all its objects, what else is there goes."""

    source: str
    meta: Meta
    puts: Mapping[Key, bytes]
    deletes: Iterable[Key] = field(default=())
    whole: bool = False


class Cache(Rows, diskcache.Cache):  # type: ignore[misc]  # the package ships no types
    """A diskcache that leaves no connection open when it cannot be opened, and gives many rows at once."""

    def __init__(self, folder: Path, **settings: object) -> None:
        try:
            super().__init__(str(folder), **settings)
        except BaseException:
            self.close()
            raise


def open_cache(folder: Path) -> Cache:
    """A diskcache that keeps what it is given: no eviction, no culling, and no file beside the database."""
    return Cache(
        folder,
        timeout=BUSY_TIMEOUT,
        disk=Values,
        eviction_policy="none",
        cull_limit=0,
        size_limit=SIZE_LIMIT,
        disk_min_file_size=1 << 30,
        statistics=0,
        sqlite_journal_mode="wal",
        sqlite_synchronous=1,
        sqlite_cache_size=PAGE_CACHE,
        sqlite_journal_size_limit=LOG_LIMIT,
        # A bad sector under a mapped page would be a SIGBUS, at each start.
        sqlite_mmap_size=0,
    )


class Disk:
    """The store in `folder`. Opened by its first use; a failed one is tried again by the next.

    One that cannot be written is read as it is, until something is to be written: that tries to open it as usual.
    """

    def __init__(self, folder: Path, opener: Callable[[Path], Cache] = open_cache) -> None:
        self.folder = folder
        self._opener = opener
        self._cache: Cache | None = None
        self._reading: Reading | None = None
        self._keys: dict[str, set[Key]] = {}
        self._metas: dict[str, Meta] = {}
        self.lost = 0
        """How many stores were set aside: what was written to them is not kept."""
        self._doubtful = True
        """What is there is not known, or a transaction failed, maybe after it was written: look before the next."""

    def open(self) -> None:
        """Find out what is kept. A store that cannot be understood is set aside. DiskError when there is no disk."""
        self._asked(lambda _: None)

    def close(self) -> None:
        for opened in (self._cache, self._reading):
            if opened is not None:
                opened.close()
        self._cache, self._reading, self._doubtful = None, None, True

    @property
    def metas(self) -> Mapping[str, Meta]:
        """What is known of each kept source, by its name."""
        return self._metas

    def read(self, source: str) -> tuple[Meta, list[bytes]] | None:
        """A kept source and its objects; None when nothing is kept, or not all of it can be read."""
        return self._asked(lambda rows: self._read(rows, source))

    def write(self, batch: Batch) -> None:
        """One transaction. DiskError when it failed, NotKept when there is no base for it: the copy is as before."""
        self._writable(lambda _: None)
        if not batch.whole and batch.source not in self._metas:
            raise NotKept(batch.source)
        known = self._keys.get(batch.source, set())
        deletes = known - batch.puts.keys() if batch.whole else set(batch.deletes) & known
        keys = (known - deletes) | batch.puts.keys()

        def work(cache: Cache) -> None:
            for key in deletes:
                cache.delete(_object_key(batch.source, key))
            for key, raw in batch.puts.items():
                _set(cache, _object_key(batch.source, key), raw)
            _set(cache, _join(_META, batch.source), orjson.dumps([len(keys), batch.meta]))

        self._transact(work)
        self._keys[batch.source] = keys
        self._metas[batch.source] = batch.meta

    def drop(self, source: str) -> None:
        """Keep a source no longer."""
        self._writable(lambda _: None)
        keys = self._keys.get(source, set())

        def work(cache: Cache) -> None:
            cache.delete(_join(_META, source))
            for key in keys:
                cache.delete(_object_key(source, key))

        self._transact(work)
        self._keys.pop(source, None)
        self._metas.pop(source, None)

    def values(self, table: str) -> dict[str, bytes]:
        """All named values of a table; those that cannot be read are not there."""
        prefix = _join(_VALUE, table) + _END

        def work(rows: Cache | Reading) -> dict[str, bytes]:
            found = {key[len(prefix) :]: _checked(key, value) for key, value in rows.rows(prefix)}
            return {name: value for name, value in found.items() if value is not None}

        return self._asked(work)

    def put(self, table: str, changes: Mapping[str, bytes | None]) -> None:
        """Set named values, None to take one away, in one transaction."""
        self.put_all({table: changes})

    def put_all(self, tables: Mapping[str, Mapping[str, bytes | None]]) -> None:
        """As `put`, of several tables."""

        def work(cache: Cache) -> None:
            for table, changes in tables.items():
                for name, value in changes.items():
                    if value is None:
                        cache.delete(_join(_VALUE, table, name))
                    else:
                        _set(cache, _join(_VALUE, table, name), value)

        self._transact(work)

    def value(self, table: str, name: str) -> bytes | None:
        """A named value; None when there is none, or it cannot be read."""
        return self._asked(lambda rows: _get(rows, _join(_VALUE, table, name)))

    def _look(self, rows: Cache | Reading) -> None:
        """Read which sources and objects there are. What was known stays until that has worked."""
        found = _get(rows, _FORMAT_KEY)
        if found != FORMAT:
            raise ValueError(f"its format is {found!r}, this hub's is {FORMAT!r}")
        keys: dict[str, set[Key]] = {}
        metas: dict[str, Meta] = {}
        for key in rows.all_keys():
            kind, *rest = key.split(_END)
            if kind == _META:
                metas[rest[0]] = {}
            elif kind == _OBJECT:
                keys.setdefault(rest[0], set()).add((rest[1], rest[2]))
        for source in list(metas):
            meta = _meta(_get(rows, _join(_META, source)), len(keys.get(source, ())))
            if meta is None:
                logger.error("the copy %s in %s is damaged; it is fetched anew", source, self.folder)
                del metas[source]
            else:
                metas[source] = meta
        self._keys, self._metas, self._doubtful = keys, metas, False

    def _read(self, rows: Cache | Reading, source: str) -> tuple[Meta, list[bytes]] | None:
        meta = self._metas.get(source)
        if meta is None:
            return None
        found = [_checked(key, value) for key, value in rows.rows(_join(_OBJECT, source) + _END)]
        raws = [raw for raw in found if raw is not None]
        if len(raws) < max(len(found), len(self._keys.get(source, ()))):
            logger.error("the copy of %s in %s is damaged; it is fetched anew", source, self.folder)
            del self._metas[source]
            return None
        return meta, raws

    def _transact(self, work: Callable[[Cache], None]) -> None:
        def transaction(cache: Cache) -> None:
            self._doubtful = True
            with cache.transact():
                work(cache)
            self._doubtful = False

        self._guarded(transaction)

    def _asked[T](self, work: Callable[[Cache | Reading], T]) -> T:
        """The result of work that only reads, also where nothing can be written."""
        if self._reading is not None:
            return self._unwritable(work)
        try:
            return self._writable(work)
        except DiskError:
            with contextlib.suppress(DiskError):
                return self._unwritable(work)
            raise

    def _unwritable[T](self, work: Callable[[Reading], T]) -> T:
        """The result of work on the store as it is. DiskError when it cannot be read: nothing is set aside."""
        try:
            if self._reading is None:
                self._reading = Reading(self.folder)
            if self._doubtful:
                self._look(self._reading)
            return work(self._reading)
        except Exception as error:
            self.close()
            raise DiskError(f"{self.folder}: {error}") from error

    def _writable[T](self, work: Callable[[Cache], T]) -> T:
        """The result of work on a store that can be written: on a new one when this one had to be set aside."""
        with contextlib.suppress(SetAside):
            return self._guarded(work)
        return self._guarded(work)

    def _guarded[T](self, work: Callable[[Cache], T]) -> T:
        """The result of work on the open store. DiskError when it failed; an unreadable store is set aside."""
        try:
            if self._cache is None:
                self.close()
                database = self.folder / diskcache.core.DBNAME
                make_private(self.folder, database)
                check(database, BUSY_TIMEOUT)
                self._cache = self._opener(self.folder)
                _mark(self._cache)
            if self._doubtful:
                self._look(self._cache)
            return work(self._cache)
        except Exception as error:
            # Any: what diskcache makes of damaged tables of its own is no error of one kind.
            # A commit that failed leaves its transaction open; it ends with the connection.
            self.close()
            # diskcache raises its own error, or a failed ROLLBACK's, over the one that says what happened.
            told = _first(error)
            if _is_unreadable(told):
                self._set_aside(told)
            raise DiskError(f"{self.folder}: {told}") from error

    def _set_aside(self, error: BaseException) -> NoReturn:
        aside = self.folder.with_name(self.folder.name + ".unreadable")
        try:
            try_to_write(self.folder.parent)
            shutil.rmtree(aside, ignore_errors=True)
            self.folder.rename(aside)
        except OSError as again:
            raise DiskError(f"{self.folder}: {error}; {again}") from error
        logger.error("the store %s cannot be read (%s); it is now %s", self.folder, error, aside)
        self._keys, self._metas = {}, {}
        self.lost += 1
        raise SetAside(f"{self.folder}: {error}") from error


def _first(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _is_unreadable(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        # The low byte: the rest tells kinds of one error apart. Errors of the Python module itself have no code.
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in UNREADABLE
    return not isinstance(error, OSError | diskcache.Timeout | MemoryError)


def _meta(value: bytes | None, objects: int) -> Meta | None:
    """What is known of a source; None when that is damaged, or is of another number of objects."""
    if value is None:
        return None
    count, meta = orjson.loads(value)
    return meta if isinstance(meta, dict) and count == objects else None


def _mark(cache: Cache) -> None:
    """Give a new store its format."""
    if len(cache) == 0 and _get(cache, _FORMAT_KEY) is None:
        _set(cache, _FORMAT_KEY, FORMAT)


def _set(cache: Cache, key: str, value: bytes) -> None:
    cache.set(key, _checksum(key, value) + value)


def _get(rows: Cache | Reading, key: str) -> bytes | None:
    """The value; None when there is none, or another than was written."""
    return _checked(key, rows.get(key))


def _checked(key: str, found: object) -> bytes | None:
    if not isinstance(found, bytes):
        return None
    checksum, value = found[:_CHECKSUM_SIZE], found[_CHECKSUM_SIZE:]
    return value if checksum == _checksum(key, value) else None


def _checksum(key: str, value: bytes) -> bytes:
    """Of key and value: a row that turns up under another key is damaged as well."""
    return zlib.crc32(value, zlib.crc32(key.encode())).to_bytes(_CHECKSUM_SIZE)


def _object_key(source: str, key: Key) -> str:
    return _join(_OBJECT, source, *key)


def _join(*parts: str) -> str:
    return _END.join(parts)
