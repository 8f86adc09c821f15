"""The database that survives a restart: copies of sources and other named values, in one diskcache (SQLite, WAL).

All calls block; the thread of `kube.disk.writer` makes them. One transaction writes a list with its version, so that a
crash leaves a state that the cloud really had.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, SupportsBytes

import diskcache
import orjson

from kube.disk.files import check, make_private, try_to_write
from kube.disk.reading import BUSY_TIMEOUT, Reading, Rows, Values
from kube.disk.rows import END, checked, checksum, join
from kube.disk.salvage import salvaged

FORMAT = b"2"
"""The version of the keys and values below. A store of another format is set aside."""
SIZE_LIMIT = 1 << 62
"""Bytes, more than any disk has. With eviction off diskcache must never think that it is full."""
PAGE_CACHE = 512
"""Pages of 4 KB that SQLite keeps in memory: few, because the hub reads each copy once."""
LOG_LIMIT = 16 * 1024 * 1024
"""Bytes to which SQLite cuts its log after a large list."""
UNREADABLE = frozenset(
    {
        *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA),
        *(sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE),
    }
)
"""SQLite's errors for a file that it cannot read. Every other error (full, locked, read-only) may pass by itself."""

_FORMAT_KEY = "format"
_META, _OBJECT, _VALUE = "m", "o", "v"

logger = logging.getLogger(__name__)

Key = tuple[str, str]
Meta = dict[str, Any]


class NotKept(Exception):
    """A change of a copy that is not on disk: the caller must write the whole source."""


class DiskError(Exception):
    """The store cannot be read or written now: full, read-only, broken. Its content has not changed."""


class SetAside(DiskError):
    """The store could not be read; an empty one has taken its place."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes of one source's copy. `whole`: `puts` holds all its objects, and other objects are deleted.

    An object of `puts` may be packed in memory. Its bytes are made when they are written, one object after the other.
    """

    source: str
    meta: Meta
    puts: Mapping[Key, SupportsBytes]
    deletes: Iterable[Key] = field(default=())
    whole: bool = False


class Cache(Rows, diskcache.Cache):  # type: ignore[misc]  # the package ships no types
    """A diskcache that closes its connection when opening fails, and reads many rows at once."""

    def __init__(self, folder: Path, **settings: object) -> None:
        try:
            super().__init__(str(folder), **settings)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def durable(self) -> Iterator[None]:
        """Transactions end when the device has them, at the price of one fsync each: it takes all before them, too."""
        self._sql("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self._sql("PRAGMA synchronous = NORMAL")


def open_cache(folder: Path) -> Cache:
    """A diskcache without eviction, culling, or files beside the database."""
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
        # A bad sector under a mapped page would kill the hub by SIGBUS, at each start.
        sqlite_mmap_size=0,
    )


class Disk:
    """The store in `folder`. The first use opens it; after a failure the next use tries again.

    Reads also work on a store that cannot be written. The next write tries to open it for writing again.
    """

    def __init__(
        self, folder: Path, opener: Callable[[Path], Cache] = open_cache, saved: Collection[str] = ()
    ) -> None:
        """`saved` are the tables that move on, as far as they can be read, when the store is set aside."""
        self.folder = folder
        self._fresh = folder.with_name(folder.name + ".new")
        self._saved = saved
        self._opener = opener
        self._cache: Cache | None = None
        self._reading: Reading | None = None
        self._keys: dict[str, set[Key]] = {}
        self._metas: dict[str, Meta] = {}
        self.lost = 0
        """How many stores were set aside, with all that was written to them."""
        self._doubtful = True
        """Whether to read the keys again: nobody has yet, or a transaction failed, perhaps after SQLite wrote it."""

    def open(self) -> None:
        """Read which sources there are. A store that cannot be read is set aside. DiskError when there is no disk."""
        self._asked(lambda _: None)

    def close(self) -> None:
        for opened in (self._cache, self._reading):
            if opened is not None:
                opened.close()
        self._cache, self._reading, self._doubtful = None, None, True

    @property
    def metas(self) -> Mapping[str, Meta]:
        """The metadata of each source on disk, by its name."""
        return self._metas

    def read(self, source: str) -> tuple[Meta, list[bytes]] | None:
        """The metadata and the objects of a source; None unless all of it can be read."""
        return self._asked(lambda rows: self._read(rows, source))

    def write(self, batch: Batch) -> None:
        """One transaction. DiskError when it fails, NotKept when there is no copy to change: nothing is written."""
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
                _set(cache, _object_key(batch.source, key), bytes(raw))
            _set(cache, join(_META, batch.source), orjson.dumps([len(keys), batch.meta]))

        self._transact(work)
        self._keys[batch.source] = keys
        self._metas[batch.source] = batch.meta

    def drop(self, source: str) -> None:
        """Delete a source."""
        self._writable(lambda _: None)
        keys = self._keys.get(source, set())

        def work(cache: Cache) -> None:
            cache.delete(join(_META, source))
            for key in keys:
                cache.delete(_object_key(source, key))

        self._transact(work)
        self._keys.pop(source, None)
        self._metas.pop(source, None)

    def values(self, table: str) -> dict[str, bytes]:
        """All named values of a table that can be read."""
        prefix = join(_VALUE, table) + END

        def work(rows: Cache | Reading) -> dict[str, bytes]:
            found = {key[len(prefix) :]: checked(key, value) for key, value in rows.rows(prefix)}
            whole = {name: value for name, value in found.items() if value is not None}
            if len(whole) < len(found):
                logger.error("%d values of %s in %s are damaged", len(found) - len(whole), table, self.folder)
            return whole

        return self._asked(work)

    def put(self, table: str, changes: Mapping[str, bytes | None], *, is_durable: bool = False) -> None:
        """Set named values in one transaction; None deletes one. `is_durable`: as of `put_all`."""
        self.put_all({table: changes}, is_durable=is_durable)

    def put_all(self, tables: Mapping[str, Mapping[str, bytes | None]], *, is_durable: bool = False) -> None:
        """As `put`, of several tables. `is_durable`: a power cut takes nothing of it afterwards, nor of before."""

        def work(cache: Cache) -> None:
            for table, changes in tables.items():
                for name, value in changes.items():
                    if value is None:
                        cache.delete(join(_VALUE, table, name))
                    else:
                        _set(cache, join(_VALUE, table, name), value)

        self._transact(work, is_durable=is_durable)

    def value(self, table: str, name: str) -> bytes | None:
        """A named value; None when there is none, or when it cannot be read."""
        return self._asked(lambda rows: _get(rows, join(_VALUE, table, name)))

    def _look(self, rows: Cache | Reading) -> None:
        """Read which sources and objects there are. The former index stays until this has worked."""
        found = _get(rows, _FORMAT_KEY)
        if found != FORMAT:
            raise ValueError(f"its format is {found!r}, this hub's is {FORMAT!r}")
        keys: dict[str, set[Key]] = {}
        metas: dict[str, Meta] = {}
        for key in rows.all_keys():
            kind, *rest = key.split(END)
            if kind == _META:
                metas[rest[0]] = {}
            elif kind == _OBJECT:
                keys.setdefault(rest[0], set()).add((rest[1], rest[2]))
        for source in list(metas):
            meta = _meta(_get(rows, join(_META, source)), len(keys.get(source, ())))
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
        found = [checked(key, value) for key, value in rows.rows(join(_OBJECT, source) + END)]
        raws = [raw for raw in found if raw is not None]
        if len(raws) < max(len(found), len(self._keys.get(source, ()))):
            logger.error("the copy of %s in %s is damaged; it is fetched anew", source, self.folder)
            del self._metas[source]
            return None
        return meta, raws

    def _transact(self, work: Callable[[Cache], None], *, is_durable: bool = False) -> None:
        def transaction(cache: Cache) -> None:
            self._doubtful = True
            with cache.durable() if is_durable else contextlib.nullcontext(), cache.transact():
                work(cache)
            self._doubtful = False

        self._guarded(transaction)

    def _asked[T](self, work: Callable[[Cache | Reading], T]) -> T:
        """Do work that only reads, also on a store that cannot be written."""
        if self._reading is not None:
            return self._unwritable(work)
        try:
            return self._writable(work)
        except DiskError:
            with contextlib.suppress(DiskError):
                return self._unwritable(work)
            raise

    def _unwritable[T](self, work: Callable[[Reading], T]) -> T:
        """Do work on a store opened for reading. DiskError when the store cannot be read; it is not set aside."""
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
        """Do work on a store opened for writing, and again on an empty one where this one had to be set aside."""
        with contextlib.suppress(SetAside):
            return self._guarded(work)
        return self._guarded(work)

    def _guarded[T](self, work: Callable[[Cache], T]) -> T:
        """Do work on the open store. DiskError when it failed, SetAside when the store could not be read."""
        try:
            if self._cache is None:
                self.close()
                if self._fresh.exists() and not self.folder.exists():
                    self._fresh.rename(self.folder)  # a crash between the two renames of `_set_aside`
                database = self.folder / diskcache.core.DBNAME
                make_private(self.folder, database)
                check(database, BUSY_TIMEOUT)
                self._cache = self._opener(self.folder)
                _mark(self._cache)
            if self._doubtful:
                self._look(self._cache)
            return work(self._cache)
        except Exception as error:
            # Every exception is caught here: diskcache raises many kinds for damaged tables.
            # A failed commit leaves its transaction open until the connection closes.
            self.close()
            # The first error says what happened. diskcache raises its own over it, or that of a failed ROLLBACK.
            told = _first(error)
            if _is_unreadable(told):
                self._set_aside(told)
            raise DiskError(f"{self.folder}: {told}") from error

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
        self._keys, self._metas = {}, {}
        self.lost += 1
        raise SetAside(f"{self.folder}: {error}") from error

    def _save(self) -> None:
        """Make the store that follows this one, with the tables that move on."""
        make_private(self._fresh, self._fresh / diskcache.core.DBNAME)
        rows = salvaged(
            self.folder / diskcache.core.DBNAME, [join(_VALUE, each) + END for each in self._saved]
        )
        fresh = open_cache(self._fresh)
        try:
            _mark(fresh)
            with fresh.durable(), fresh.transact():
                for key, value in rows.items():
                    _set(fresh, key, value)
        finally:
            fresh.close()
        if rows:
            logger.warning("%d values of %s move on to a new store", len(rows), self.folder)


def _first(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _is_unreadable(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        # The low byte is the error, the rest its kind. Errors of the Python module itself have no code.
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in UNREADABLE
    return not isinstance(error, OSError | diskcache.Timeout | MemoryError)


def _meta(value: bytes | None, objects: int) -> Meta | None:
    """The metadata of a source; None when it is damaged, or counts another number of objects."""
    if value is None:
        return None
    count, meta = orjson.loads(value)
    return meta if isinstance(meta, dict) and count == objects else None


def _mark(cache: Cache) -> None:
    """Give a new store its format."""
    if len(cache) == 0 and _get(cache, _FORMAT_KEY) is None:
        _set(cache, _FORMAT_KEY, FORMAT)


def _set(cache: Cache, key: str, value: bytes) -> None:
    cache.set(key, checksum(key, value) + value)


def _get(rows: Cache | Reading, key: str) -> bytes | None:
    """The value; None when there is none, or when it is not the one that was written."""
    return checked(key, rows.get(key))


def _object_key(source: str, key: Key) -> str:
    return join(_OBJECT, source, *key)
