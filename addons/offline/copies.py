"""Keeps sources on disk: each store's changes, in batches that wait a moment for more, and the copy at a start.

A batch is taken between two turns of the event loop. A store takes a list, and the events of one chunk, within one
turn, so what is written is always what the cloud had at the version that is written with it. A crash loses the last
moment's changes (LINGER and the write) and nothing else: the copy is of an earlier version, from which the reflector
resumes its watch, so that the cloud tells them again. What is whole, a refusal and the last batch do not wait, nor
does what the node itself made of an object: a client was promised that, and nobody would tell it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import orjson

from addons.offline.start_from_disk import StartFromDisk
from addons.telemetry import metrics
from kube.disk.database import Batch, Disk, DiskError, Key, Meta, NotKept
from kube.disk.writer import PATIENCE, DiskWriter
from kube.errors import StatusError
from kube.requests.request_info import ResourceType
from kube.store.reflector import ListWatch, Reflector, read_items
from kube.store.store import Change, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

MAX_PENDING = 10_000
"""Changes of one source that wait for the disk; past them the source is written whole when the disk is back."""
LINGER = 0.25
"""Seconds that a change waits for others, so that a burst is one transaction: each costs the disk a commit, and the
clients some milliseconds of the interpreter, which the disk's thread holds meanwhile. Longer would save little (four
transactions a second are few) and let a node that crashes without its cloud wake with an older state."""
RETRY = 5.0
"""Seconds until a failed write is tried again."""
ASKED_STEP = 3600
"""Seconds by which the time of the last question on disk may be behind: each write of it costs the disk."""

logger = logging.getLogger(__name__)


class Copies:
    """The disk as sources see it."""

    def __init__(self, disk: Disk, writer: DiskWriter, clock: Callable[[], float] = time.time) -> None:
        """`clock` is wall time, which outlives a restart and may be set: see `addons.offline.garbage`."""
        self.disk = disk
        self.writer = writer
        self.clock = clock
        self._copies: set[Copy] = set()
        self.on_loss: list[Callable[[], None]] = []
        """Told when what was written is no more, because the store had to be set aside."""
        self._lost = 0
        self._failing = False

    async def open(self) -> None:
        """Find out what is kept; without a disk, or with a slow one, the hub goes on."""
        await self.ask(self.disk.open)

    def copy(self, identity: str, list_watch: ListWatch, store: Store) -> Copy:
        """The copy of a source's store, followed from now on."""
        made = Copy(self, identity, list_watch, store)
        self._copies.add(made)
        return made

    def list_watches(self, identity: str) -> list[ListWatch]:
        """The questions whose answers an identity has on disk."""
        metas = list(self.disk.metas.values())
        return [
            list_watch_of(meta)
            for meta in metas
            if meta.get("identity") == identity and "question" in meta and "refused" not in meta
        ]

    def forget(self, copy: Copy) -> None:
        self._copies.discard(copy)

    def close(self, table: str = "", values: Mapping[str, bytes | None] = MappingProxyType({})) -> None:
        """Write what waits, and named values of a table, as far as the disk lets it be done in time."""
        batches = [batch for copy in self._copies if (batch := copy.take()) is not None]
        works = [partial(self.disk.write, batch) for batch in batches]
        if values:
            works.insert(0, partial(self.disk.put, table, values))

        def last() -> None:
            for work in works:
                try:
                    work()
                except (DiskError, NotKept) as error:
                    logger.warning("not written at the end: %s", error)
            self.disk.close()

        self.writer.close(last)

    def running(self) -> set[str]:
        """The names of the copies that are followed now."""
        return {copy.name for copy in self._copies}

    def is_recent(self, asked: int) -> bool:
        """Whether a time of a last question may stay on disk. One of the future is of a clock that was wrong."""
        return 0 <= self.clock() - asked < ASKED_STEP

    async def ask[T](self, work: Callable[[], T]) -> T | None:
        """As `guard`, for somebody who waits: None as well when the disk takes longer than PATIENCE."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.guard(work)
        except TimeoutError:
            metrics.CACHE_WRITE_ERRORS.inc()
            logger.warning("the disk has not answered for %g s", PATIENCE)
            return None

    async def guard[T](self, work: Callable[[], T]) -> T | None:
        """The result of blocking work on the disk; None, counted and told once, when the disk failed."""
        try:
            return await self.writer.do(work)
        except NotKept:
            raise
        except DiskError as error:
            metrics.CACHE_WRITE_ERRORS.inc()
            if not self._failing:
                logger.error("the disk cannot be used, the hub goes on without: %s", error)
            self._failing = True
        except Exception:
            # A bug of ours: what was to be written is not, and must not be taken for written.
            metrics.CACHE_WRITE_ERRORS.inc()
            logger.exception("work on the disk failed")
        finally:
            self._look_for_losses()
        return None

    async def write(self, work: Callable[[], None]) -> bool:
        """Whether blocking work that writes was done. That a disk can be read again says nothing of this."""

        def whole() -> bool:
            work()
            return True

        if not await self.guard(whole):
            return False
        if self._failing:
            logger.info("the disk can be used again")
        self._failing = False
        return True

    def _look_for_losses(self) -> None:
        if self._lost != self.disk.lost:
            self._lost = self.disk.lost
            for tell in (*(copy.lost for copy in self._copies), *self.on_loss):
                tell()

    async def drop(self, names: Collection[str]) -> None:
        """Keep these copies, which nobody follows, no longer."""

        def work() -> None:
            for name in names:
                self.disk.drop(name)

        await self.write(work)


class Copy:
    """One source on disk. A listener of its store."""

    def __init__(self, copies: Copies, identity: str, list_watch: ListWatch, store: Store) -> None:
        self._copies = copies
        self._list_watch = list_watch
        self._identity = identity
        self._store = store
        self.name = source_name(identity, list_watch)
        self._pending: dict[Key, bytes | None] = {}
        self._whole = True
        self._version = -1
        self._refused = 0
        self._asked = int(copies.clock())
        self._stamped = False
        """The time of the last question is on disk, or near enough to what is."""
        self._closed = False
        self._amended = False
        """What waits has something that the node itself made."""
        self._next: asyncio.Handle | None = None
        """Begins the next batch."""
        self._is_writing = False
        self._writing: asyncio.Task[None] | None = None
        store.listen(self)

    def close(self) -> None:
        """Follow the store no longer; what waits is written, once."""
        self._closed = True
        self._store.forget(self)
        self._changed()
        self._copies.forget(self)

    def start(self, reflector: Reflector, trusts: Callable[[int], bool]) -> StartFromDisk:
        """Begin from this copy. The reflector lists anew when `trusts` denies the copy's version."""
        return StartFromDisk(self.restore, self._store, reflector, trusts, self._list_watch.path)

    async def restore(self) -> StatusError | None:
        """Fill the store from disk if a copy is there; the refusal when the cloud had nothing of the kind."""
        name, losses = self.name, self._copies.disk.lost
        read = await self._copies.guard(lambda: self._copies.disk.read(name))
        if read is None or self._store.complete:
            return None
        meta, raws = read
        self._stamped = self._copies.is_recent(meta.get("asked", 0))
        if "refused" in meta:
            missing = "the server could not find the requested resource"
            return StatusError(404, "NotFound", missing) if meta["refused"] == 404 else None
        try:
            codec = codec_for(Encoding(meta["encoding"]))
            items = await read_items(self._store, codec, raws)
        except (KeyError, TypeError, ValueError) as error:
            logger.error(
                "the copy of %s cannot be read (%s); it is fetched anew", self._list_watch.path, error
            )
            return None
        if self._store.complete:
            return None  # the cloud was faster
        self._store.replace_items(codec, meta["apiVersion"], meta["kind"], meta["version"], items)
        # The store may have been set aside since.
        self._whole, self._version = self._copies.disk.lost != losses, self._store.version
        self._pending.clear()
        return None

    def lost(self) -> None:
        """What was written is no more. A source that is quiet must not wait for its next change."""
        self._rewrite()
        self._changed()

    def use(self) -> None:
        """Somebody asks, or still watches."""
        if not self._copies.is_recent(self._asked):
            self._asked, self._stamped = int(self._copies.clock()), False
        if not self._stamped:
            self._changed()

    def refused(self, refusal: StatusError) -> None:
        """What the cloud no longer shows is kept no longer; that it has no such kind is remembered."""
        if refusal.code in (403, 404):
            self._refused = refusal.code
            self._rewrite()
            self._changed()

    def changed(self, change: Change) -> None:
        self._back()
        if not self._whole:
            self._pending[change.key] = change.new.raw if change.new is not None else None
            if len(self._pending) > MAX_PENDING:
                self._rewrite()
        if change.old is not None and change.new is not None and change.old.version == change.new.version:
            self._amended = True
            if not self._is_writing:
                # Now: it must be on its way to the disk before the entry of the journal that follows it.
                self._begin()
        self._changed()

    def advanced(self) -> None:
        self._back()
        self._changed()

    def restarted(self) -> None:
        self._rewrite()
        self._changed()

    def take(self) -> Batch | None:
        """What has changed since the last batch; None when nothing has."""
        self._stop_waiting()
        if not self._waits:
            return None
        if self._refused:
            batch = Batch(self.name, {**self._meta(), "refused": self._refused}, {}, whole=True)
        elif self._whole:
            batch = Batch(self.name, self._meta(), {item.key: item.raw for item in self._store}, whole=True)
        else:
            puts = {key: raw for key, raw in self._pending.items() if raw is not None}
            deletes = [key for key, raw in self._pending.items() if raw is None]
            batch = Batch(self.name, self._meta(), puts, deletes)
        self._whole, self._version, self._stamped = False, self._store.version, True
        self._pending, self._amended = {}, False
        return batch

    @property
    def _waits(self) -> bool:
        """Whether there is something that was in no batch yet."""
        if not self._refused and not self._store.complete:
            return False
        moved = self._store.version != self._version or bool(self._pending)
        return moved or self._whole or not self._stamped

    @property
    def _is_urgent(self) -> bool:
        return self._whole or self._closed or self._amended

    def _back(self) -> None:
        """The cloud shows it again: nothing of it is on disk."""
        if self._refused:
            self._refused = 0
            self._rewrite()

    def _rewrite(self) -> None:
        self._whole = True
        self._pending.clear()

    def _changed(self) -> None:
        """Write what waits: next, after the write that is under way, or once it has lingered.

        Not at once, in the middle of what the store takes: mitmproxy's tasks begin where they are made.
        """
        if self._is_writing:
            return
        lingers = isinstance(self._next, asyncio.TimerHandle)
        if self._next is None or (lingers and self._is_urgent):
            self._stop_waiting()
            loop = asyncio.get_running_loop()
            urgent = self._is_urgent
            self._next = loop.call_soon(self._begin) if urgent else loop.call_later(LINGER, self._begin)

    def _begin(self) -> None:
        self._stop_waiting()
        self._is_writing = True
        self._writing = asyncio.get_running_loop().create_task(self._write(), name=f"copy {self.name}")

    def _stop_waiting(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    async def _write(self) -> None:
        try:
            await self._write_batches()
        finally:
            self._is_writing = False
        if self._waits and not self._closed:
            self._changed()

    async def _write_batches(self) -> None:
        """One batch, and further ones as long as they may not linger."""
        while (batch := self.take()) is not None:
            if await self._written(batch):
                if not self._is_urgent:
                    return
                continue
            if self._closed:
                return  # by now another copy of the same name may be followed, and this one would spoil it
            self._rewrite()
            await asyncio.sleep(RETRY)

    async def _written(self, batch: Batch) -> bool:
        disk = self._copies.disk
        try:
            return await self._copies.write(lambda: disk.write(batch))
        except NotKept:
            return False

    def _meta(self) -> dict[str, Any]:
        store = self._store
        return {
            "identity": self._identity,
            "question": _described(self._list_watch),
            "asked": self._asked,
            "version": store.version,
            "apiVersion": store.api_version,
            "kind": store.kind,
            "encoding": store.codec.encoding if store.complete else self._list_watch.encoding,
        }


def list_watch_of(meta: Meta) -> ListWatch:
    """The question that a source's meta describes."""
    group, version, resource, namespace, labels, fields, encoding, metadata_only = meta["question"]
    kind = ResourceType(group, version, resource)
    return ListWatch(kind, namespace, labels, fields, Encoding(encoding), metadata_only)


def _described(list_watch: ListWatch) -> list[str | bool]:
    return [
        *(list_watch.type.group, list_watch.type.version, list_watch.type.resource),
        *(list_watch.namespace, list_watch.label_selector, list_watch.field_selector),
        *(list_watch.encoding, list_watch.metadata_only),
    ]


def source_name(identity: str, list_watch: ListWatch) -> str:
    """A name for a source on disk: the same for the same question of the same identity, and for no other."""
    return hashlib.sha256(orjson.dumps([identity, *_described(list_watch)])).hexdigest()[:32]
