"""What outlives a restart: copies of sources and other named values, in one diskcache store (SQLite, WAL).

All calls block and belong to one thread, `kube.disk_writer`'s. A list and the version it is of are written in one
transaction, so that a crash leaves a copy that the cloud really had.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diskcache
import orjson

FORMAT = b"1"
"""Of the keys and values below. A store of another format is set aside, not guessed at."""
SIZE_LIMIT = 1 << 62
"""Bytes: none. With eviction off diskcache must never think that it is full."""
BUSY_TIMEOUT = 1.0
"""Seconds to wait for SQLite's lock, which nobody else should hold."""

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


@dataclass(frozen=True, slots=True)
class Batch:
    """What changed in one source's copy. `whole`: `puts` are all its objects, what else is there goes."""

    source: str
    meta: Meta
    puts: Mapping[Key, bytes]
    deletes: Iterable[Key] = field(default=())
    whole: bool = False


def open_cache(folder: Path) -> diskcache.Cache:
    """A diskcache that keeps what it is given: no eviction, no culling, and no file beside the database."""
    return diskcache.Cache(
        str(folder),
        timeout=BUSY_TIMEOUT,
        eviction_policy="none",
        cull_limit=0,
        size_limit=SIZE_LIMIT,
        disk_min_file_size=1 << 30,
        statistics=0,
        sqlite_journal_mode="wal",
        sqlite_synchronous=1,
    )


class Disk:
    """The store in `folder`. `open` before anything else; a failed one may be tried again."""

    def __init__(self, folder: Path, opener: Callable[[Path], diskcache.Cache] = open_cache) -> None:
        self.folder = folder
        self._opener = opener
        self._cache: diskcache.Cache | None = None
        self._keys: dict[str, set[Key]] = {}
        self._metas: dict[str, Meta] = {}

    def open(self) -> None:
        """Find out what is kept. A store that cannot be understood is set aside. DiskError when there is no disk."""
        try:
            self._open()
        except (sqlite3.OperationalError, OSError, diskcache.Timeout) as error:
            self._close()
            raise DiskError(f"{self.folder}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            self._set_aside(error)

    def close(self) -> None:
        self._close()

    @property
    def metas(self) -> Mapping[str, Meta]:
        """What is known of each kept source, by its name."""
        return self._metas

    def read(self, source: str) -> tuple[Meta, list[bytes]] | None:
        """A kept source and its objects; None when nothing is kept, or not all of it can be read."""
        meta = self._metas.get(source)
        if meta is None:
            return None
        raws = [self._get(_object_key(source, key)) for key in self._keys.get(source, ())]
        found = [raw for raw in raws if raw is not None]
        return (meta, found) if len(found) == len(raws) else None

    def write(self, batch: Batch) -> None:
        """One transaction. DiskError when it failed, NotKept when there is no base for it: the copy is as before."""
        if not batch.whole and batch.source not in self._metas:
            raise NotKept(batch.source)
        known = self._keys.get(batch.source, set())
        deletes = known - batch.puts.keys() if batch.whole else set(batch.deletes) & known

        def work(cache: diskcache.Cache) -> None:
            for key in deletes:
                cache.delete(_object_key(batch.source, key))
            for key, raw in batch.puts.items():
                cache.set(_object_key(batch.source, key), raw)
            cache.set(_join(_META, batch.source), orjson.dumps(batch.meta))

        self._transact(work)
        self._keys[batch.source] = (known - deletes) | batch.puts.keys()
        self._metas[batch.source] = batch.meta

    def drop(self, source: str) -> None:
        """Keep a source no longer."""
        keys = self._keys.get(source, set())

        def work(cache: diskcache.Cache) -> None:
            cache.delete(_join(_META, source))
            for key in keys:
                cache.delete(_object_key(source, key))

        self._transact(work)
        self._keys.pop(source, None)
        self._metas.pop(source, None)

    def values(self, table: str) -> dict[str, bytes]:
        """All named values of a table."""
        prefix = _join(_VALUE, table) + _END
        keys = self._look(lambda cache: [key for key in cache.iterkeys() if key.startswith(prefix)])
        names = [key[len(prefix) :] for key in keys or ()]
        found = {name: self._get(prefix + name) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def put(self, table: str, changes: Mapping[str, bytes | None]) -> None:
        """Set named values, None to take one away, in one transaction."""

        def work(cache: diskcache.Cache) -> None:
            for name, value in changes.items():
                if value is None:
                    cache.delete(_join(_VALUE, table, name))
                else:
                    cache.set(_join(_VALUE, table, name), value)

        self._transact(work)

    def value(self, table: str, name: str) -> bytes | None:
        return self._get(_join(_VALUE, table, name))

    def _open(self) -> None:
        _make_private(self.folder)
        _check(self.folder / diskcache.core.DBNAME)
        cache = self._cache = self._opener(self.folder)
        found = cache.get(_FORMAT_KEY)
        if found is None and len(cache) == 0:
            cache.set(_FORMAT_KEY, FORMAT)
        elif found != FORMAT:
            raise ValueError(f"its format is {found!r}, this hub's is {FORMAT!r}")
        self._keys, self._metas = {}, {}
        for key in cache.iterkeys():
            kind, *rest = key.split(_END)
            if kind == _META:
                self._metas[rest[0]] = _meta(cache.get(key))
            elif kind == _OBJECT:
                self._keys.setdefault(rest[0], set()).add((rest[1], rest[2]))

    def _set_aside(self, error: Exception) -> None:
        self._close()
        aside = self.folder.with_name(self.folder.name + ".unreadable")
        logger.error("the store %s cannot be read (%s); it is now %s", self.folder, error, aside)
        try:
            shutil.rmtree(aside, ignore_errors=True)
            self.folder.rename(aside)
            self._open()
        except (sqlite3.Error, OSError, ValueError, diskcache.Timeout) as again:
            self._close()
            raise DiskError(f"{self.folder}: {again}") from again

    def _transact(self, work: Callable[[diskcache.Cache], None]) -> None:
        if self._cache is None:
            self.open()
        cache = self._opened()
        try:
            with cache.transact():
                work(cache)
        except (sqlite3.OperationalError, OSError, diskcache.Timeout) as error:
            # A commit that failed leaves its transaction open; it ends with the connection, which comes back by itself.
            cache.close()
            raise DiskError(f"{self.folder}: {error}") from error
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            raise DiskError(f"{self.folder}: {error}") from error

    def _get(self, key: str) -> bytes | None:
        value = self._look(lambda cache: cache.get(key))
        return value if isinstance(value, bytes) else None

    def _look[T](self, work: Callable[[diskcache.Cache], T]) -> T | None:
        """What is read; None when the store cannot be understood, and is set aside. DiskError as `write`."""
        try:
            return work(self._opened())
        except (sqlite3.OperationalError, OSError, diskcache.Timeout) as error:
            raise DiskError(f"{self.folder}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            self._set_aside(error)
            return None

    def _opened(self) -> diskcache.Cache:
        if self._cache is None:
            raise DiskError(f"{self.folder} is not open")
        return self._cache

    def _close(self) -> None:
        cache, self._cache = self._cache, None
        self._keys, self._metas = {}, {}
        if cache is not None:
            cache.close()


def _make_private(folder: Path) -> None:
    """SQLite gives its other files the mode of the database, so that one is made before."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    database = folder / diskcache.core.DBNAME
    os.close(os.open(database, os.O_CREAT | os.O_RDWR, 0o600))
    database.chmod(0o600)


def _check(database: Path) -> None:
    """DatabaseError when the file is none; found out here, as diskcache would leave its connection open."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _meta(value: object) -> Meta:
    meta = orjson.loads(value) if isinstance(value, bytes) else None
    if not isinstance(meta, dict):
        raise ValueError("what it says of a source is no object")
    return meta


def _object_key(source: str, key: Key) -> str:
    return _join(_OBJECT, source, *key)


def _join(*parts: str) -> str:
    return _END.join(parts)
