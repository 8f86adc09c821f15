"""Keeps sources on disk: writes each store's changes in batches, and fills the store from disk at a start.

A batch is taken between two turns of the event loop. A store takes a list, and the events of one chunk, within one
turn, so a batch is always a state that the cloud had, written with its version in one transaction. A crash loses the
changes of the last moment (LINGER and the write): the reflector resumes its watch from the version on disk, and the
cloud sends those changes again.

Whole lists, refusals, a source's last batch, and the node's own writes go to disk at once: the cloud would not send a
write of the node again. Everything else waits LINGER, so that a burst of events is one transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from addons.offline.copy_meta import FORMER, described, is_shown, list_watch_of, source_name, witness_of
from addons.offline.start_from_disk import StartFromDisk
from addons.telemetry import metrics
from kube.bounds import reached
from kube.disk.database import Batch, Disk, DiskError, Key, NotKept
from kube.disk.writer import PATIENCE, DiskWriter
from kube.errors import StatusError
from kube.packed_text import Kept
from kube.reflector.list_pages import read_items
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.store.store import Change, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

MAX_PENDING = 10_000
"""Changes of one source that wait for the disk. Beyond them the source is written whole when the disk is back."""
LINGER = 0.25
"""Seconds that a change waits for others. A transaction costs the disk a commit, and the clients some milliseconds in
which the disk's thread holds the interpreter. Four transactions a second are few; a longer wait would let a node that
crashes while its cloud is away start with an older state."""
RETRY = 5.0
"""Seconds from a failed write to the next try."""
ASKED_STEP = 3600
"""Seconds by which the time of a copy's last use may be outdated on disk: writing it costs a transaction."""

logger = logging.getLogger(__name__)


class DiskCopies:
    """All sources on disk, and the way to the disk for everything else that the hub keeps there."""

    def __init__(self, disk: Disk, writer: DiskWriter, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives wall time, which goes on over a restart but may be wrong: see `addons.offline.garbage`."""
        self.disk = disk
        self.writer = writer
        self.clock = clock
        self._copies: set[DiskCopy] = set()
        self.on_loss: list[Callable[[], None]] = []
        """Called when the database had to be set aside, so that all that was written is lost."""
        self.on_restore: list[Callable[[], None]] = []
        """Called when the cloud was restored from a backup: versions from before mean nothing any more."""
        self._lost = 0
        self._failing = False
        self._disproving: asyncio.Task[bool] | None = None

    async def open(self) -> None:
        """Read what is kept. The hub goes on where there is no disk, or where it takes longer than PATIENCE."""
        await self.ask(self.disk.open)

    def copy(self, identity: str, list_watch: ListWatch, store: Store) -> DiskCopy:
        """The copy of a source's store, which follows the store from now on."""
        made = DiskCopy(self, identity, list_watch, store)
        self._copies.add(made)
        return made

    def list_watches(self, identity: str) -> dict[ListWatch, int]:
        """The list-watches of which an identity has copies on disk, with the versions of the copies."""
        own = [
            meta for meta in self.disk.metas.values() if meta.get("identity") == identity and is_shown(meta)
        ]
        return {list_watch_of(meta): meta.get("version", 0) for meta in own}

    def forget(self, copy: DiskCopy) -> None:
        self._copies.discard(copy)

    def close(self, rows: Mapping[str, Mapping[str, bytes | None]] = MappingProxyType({})) -> None:
        """Write what waits, and rows of tables, as far as the disk manages in CLOSE_TIMEOUT."""
        batches = [batch for copy in self._copies if (batch := copy.take()) is not None]
        works = [partial(self.disk.write, batch) for batch in batches]
        if any(rows.values()):
            works.insert(0, partial(self.disk.put_all, rows))

        def last() -> None:
            for work in works:
                try:
                    work()
                except (DiskError, NotKept) as error:
                    logger.warning("not written at the end: %s", error)
            self.disk.close()

        self.writer.close(last)

    def running(self) -> set[str]:
        """The names of the copies whose sources run."""
        return {copy.name for copy in self._copies}

    def is_recent(self, asked: int) -> bool:
        """Whether a time of last use on disk is recent enough. A time in the future is that of a wrong clock."""
        return 0 <= self.clock() - asked < ASKED_STEP

    async def ask[T](self, work: Callable[[], T]) -> T | None:
        """As `guard`, for a client that waits: None as well when the disk takes longer than PATIENCE."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.guard(work)
        except TimeoutError:
            metrics.CACHE_WRITE_ERRORS.inc()
            logger.warning("the disk has not answered for %g s", PATIENCE)
            return None

    async def guard[T](self, work: Callable[[], T]) -> T | None:
        """The result of blocking work on the disk. None when the disk fails, which is counted, and logged once."""
        try:
            return await self.writer.do(work)
        except NotKept:
            raise
        except DiskError as error:
            metrics.CACHE_WRITE_ERRORS.inc()
            if not self._failing:
                logger.error("the disk cannot be used, the hub goes on without it: %s", error)
            self._failing = True
        except Exception:
            # A bug of the hub. The result None tells the caller that nothing was written.
            metrics.CACHE_WRITE_ERRORS.inc()
            logger.exception("work on the disk failed")
        finally:
            self._look_for_losses()
        return None

    async def write(self, work: Callable[[], None]) -> bool:
        """Do blocking work that writes; False when it failed. Only a write proves that the disk works again."""

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

    def disprove_unused(self) -> list[tuple[ListWatch, int]]:
        """Mark the copies whose sources do not run, for the cloud has another history: what of, their versions."""
        for tell in self.on_restore:
            tell()
        names = self.disk.metas.keys() - self.running()
        unused = {name: meta for name in names if is_shown(meta := self.disk.metas[name])}

        def work() -> None:
            for name, meta in unused.items():
                self.disk.write(Batch(name, {**meta, FORMER: True}, {}))

        self._disproving = asyncio.create_task(self.write(work), name="copies from before a restore")
        return [(list_watch_of(meta), meta["version"]) for meta in unused.values()]

    async def drop(self, names: Collection[str]) -> None:
        """Delete these copies, whose sources do not run."""

        def work() -> None:
            for name in names:
                self.disk.drop(name)

        await self.write(work)


class DiskCopy:
    """One source on disk. A listener of its store."""

    def __init__(self, copies: DiskCopies, identity: str, list_watch: ListWatch, store: Store) -> None:
        self._copies = copies
        self._list_watch = list_watch
        self._identity = identity
        self._store = store
        self.name = source_name(identity, list_watch)
        self._pending: dict[Key, Kept | None] = {}
        self._whole = True
        self._version = -1
        self._refused = 0
        self._last_used = int(copies.clock())
        self._stamped = False
        """Whether the time of last use on disk is recent enough."""
        self._closed = False
        self._amended = False
        """Whether a write of the node itself waits for the disk."""
        self._next: asyncio.Handle | None = None
        """The callback that begins the next batch."""
        self._is_writing = False
        self._writing: asyncio.Task[None] | None = None
        store.listen(self)

    def close(self) -> None:
        """Stop following the store, and write what waits, once."""
        self._closed = True
        self._store.forget(self)
        self._changed()
        self._copies.forget(self)

    @property
    def is_written(self) -> bool:
        return not self._is_writing and not self._waits

    def start(self, reflector: Reflector) -> StartFromDisk:
        """Begin from this copy."""
        return StartFromDisk(self.restore, self._store, reflector, self._list_watch.path)

    async def restore(self) -> StatusError | None:
        """Fill the store from the copy, if there is one. Returns the cloud's 404 where that was kept instead."""
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
        if FORMER in meta:
            self._store.take_former(meta["version"], items)
            return None
        self._store.replace_items(codec, meta["apiVersion"], meta["kind"], meta["version"], items)
        self._store.witness = witness_of(meta)
        # The store may have been set aside since.
        self._whole, self._version = self._copies.disk.lost != losses, self._store.version
        self._pending.clear()
        return None

    def lost(self) -> None:
        """Write the source anew, now: what was written is lost, and a quiet source may have no change for long."""
        self._rewrite()
        self._changed()

    def use(self) -> None:
        """Note that a client lists or watches."""
        if not self._copies.is_recent(self._last_used):
            self._last_used, self._stamped = int(self._copies.clock()), False
        if not self._stamped:
            self._changed()

    def refused(self, refusal: StatusError) -> None:
        """Delete what the cloud no longer shows (403), and remember that it has no such resource (404)."""
        if refusal.code in (403, 404):
            self._refused = refusal.code
            self._rewrite()
            self._changed()

    def changed(self, change: Change) -> None:
        self._end_refusal()
        if not self._whole:
            self._pending[change.key] = change.new.kept if change.new is not None else None
            if len(self._pending) > MAX_PENDING:
                reached("changes that wait for the disk")
                self._rewrite()
        if change.old is not None and change.new is not None and change.old.version == change.new.version:
            self._amended = True
            if not self._is_writing:
                # At once: the copy must reach the disk before the journal's entry for the same write.
                self._begin()
        self._changed()

    def advanced(self) -> None:
        self._end_refusal()
        self._changed()

    def restarted(self) -> None:
        self._rewrite()
        self._changed()

    def take(self) -> Batch | None:
        """The batch of all changes since the last one; None when there are none."""
        self._stop_waiting()
        if not self._waits:
            return None
        if self._refused:
            batch = Batch(self.name, {**self._meta(), "refused": self._refused}, {}, whole=True)
        elif self._whole:
            batch = Batch(self.name, self._meta(), {item.key: item.kept for item in self._store}, whole=True)
        else:
            puts = {key: kept for key, kept in self._pending.items() if kept is not None}
            deletes = [key for key, kept in self._pending.items() if kept is None]
            batch = Batch(self.name, self._meta(), puts, deletes)
        self._whole, self._version, self._stamped = False, self._store.version, True
        self._pending, self._amended = {}, False
        return batch

    @property
    def _waits(self) -> bool:
        """Whether a change waits that was in no batch yet."""
        if not self._refused and not self._store.complete:
            return False
        moved = self._store.version != self._version or bool(self._pending)
        return moved or self._whole or not self._stamped

    @property
    def _is_urgent(self) -> bool:
        return self._whole or self._closed or self._amended

    def _end_refusal(self) -> None:
        """The cloud shows the source again after a refusal. The disk has nothing of it, so write it whole."""
        if self._refused:
            self._refused = 0
            self._rewrite()

    def _rewrite(self) -> None:
        self._whole = True
        self._pending.clear()

    def _changed(self) -> None:
        """Schedule the next batch: after the running write, in the loop's next turn if urgent, or after LINGER.

        A task would be too early: mitmproxy's loop starts tasks eagerly, in the middle of what the store takes.
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
        """Write one batch, and further ones while they are urgent."""
        while (batch := self.take()) is not None:
            if await self._written(batch):
                if not self._is_urgent:
                    return
                continue
            if self._closed:
                return  # A new source of the same name may write its own copy by now.
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
            "question": described(self._list_watch),
            "asked": self._last_used,
            "version": store.version,
            "witness": [*store.witness.key, store.witness.version] if store.witness is not None else [],
            "bytes": store.size,
            "apiVersion": store.api_version,
            "kind": store.kind,
            "encoding": store.codec.encoding if store.complete else self._list_watch.encoding,
        }
