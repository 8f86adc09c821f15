"""Stores sources on disk: writes each store's changes behind it, and fills the store from disk at the start.

A start reads the disk and the cloud concurrently, so that a slow one does not delay the other.

A store applies a list, or the events of one chunk, within one iteration of the event loop, so a batch is always a state
that the cloud had, written with its version in one transaction. A crash loses the changes of the last moment (LINGER
and the write): the reflector resumes from the version on disk, and the cloud sends those changes again.

Lists, refusals, last batches and the node's own writes are written at once, because the cloud does not send the node's
own writes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Mapping

from addons.offline.tables.copy_meta import (
    APPLIED_WRITES,
    FORMER_HISTORY,
    UNFOLLOWED,
    applied_in,
    described,
    is_shown,
    last_event_of,
    list_watch_of,
    refusal_of,
    source_name,
)
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.views.persistence import Checkpoints, checkpoints_of, past_of
from kube.concurrency.notifier import completes_within
from kube.disk.copy_rows import (
    COUNT,
    METAS,
    Meta,
    copy_batch,
    dropped_copy,
    mark_copies,
    object_name,
    objects_of,
    read_copy,
    read_metas,
)
from kube.disk.database import Batch, TableChanges
from kube.disk.writer import DISK_TIMEOUT
from kube.errors import StatusError
from kube.packed_text import StoredText
from kube.reflector.list_pages import read_items
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.store.store import Change, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

CONFIRM = 1.0
"""Seconds that clients wait for the reflector to resume from the copy. After that they get the copy as it is."""
WITHDRAWAL_TIMEOUT = 0.25
"""Maximum seconds that a change of a filter's input waits until the disk has dropped the filter's checkpoints."""
RESUME_SETTLE_TIME = 0.1
"""Seconds from a resumed watch's answer within which the events since the copy's version arrive."""

logger = logging.getLogger(__name__)


class DiskCopies:
    def __init__(self, access: DiskAccess) -> None:
        self.access = access
        self.metas: dict[str, Meta] = {}
        """The metadata of each copy on disk, by its name."""
        self.process = os.urandom(8).hex()
        """The id of this process, which ignores its own checkpoints."""
        self._copies: set[DiskCopy] = set()
        self.on_read: list[Callable[[ListWatch, Store], None]] = []
        """Called with each store that has just been filled from the disk."""
        self.on_restore: list[Callable[[], None]] = []
        """Called when the cloud was restored from a backup, which invalidates earlier versions."""
        self._marking: set[asyncio.Task[None]] = set()
        self._is_online = False  # whether a source has followed the cloud in this process
        access.on_loss.append(self._lost)
        access.on_write.append(self._written)

    async def open(self) -> None:
        """Load the index of the copies."""
        await self.access.load(self._read())

    async def _read(self) -> None:
        self.metas = read_metas(await self.access.rows(METAS)) | self.metas
        if self._is_online:
            self._mark_unused(UNFOLLOWED)

    def copy(self, identity: str, list_watch: ListWatch, store: Store) -> DiskCopy:
        """Return the copy of a source's store. It follows the store from now on."""
        made = DiskCopy(self, identity, list_watch, store)
        self._copies.add(made)
        return made

    def list_watches(self, identity: str) -> dict[ListWatch, int]:
        """The list-watches of which an identity has copies on disk, with the versions of the copies."""
        own = [meta for meta in self.metas.values() if meta.get("identity") == identity and is_shown(meta)]
        return {list_watch_of(meta): meta.get("version", 0) for meta in own}

    def forget(self, copy: DiskCopy) -> None:
        self._copies.discard(copy)

    def running(self) -> set[str]:
        """Return the names of the copies with running sources."""
        return {copy.name for copy in self._copies}

    def idle(self) -> dict[str, Meta]:
        """Return the copies without a running source. A copy with one is in use, or was minutes ago."""
        running = self.running()
        return {name: meta for name, meta in self.metas.items() if name not in running}

    def disprove_unused(self) -> list[tuple[ListWatch, int]]:
        """Mark the copies without a running source, because the cloud has a new history; return their resources and
        versions."""
        for listener in self.on_restore:
            listener()
        return [(list_watch_of(meta), meta["version"]) for meta in self._mark_unused(FORMER_HISTORY).values()]

    def went_online(self) -> None:
        """Mark the copies without a running source: from now on the cloud may have objects that they lack."""
        if not self._is_online:
            self._is_online = True
            self._mark_unused(UNFOLLOWED)

    def _mark_unused(self, key: str) -> dict[str, Meta]:
        unused = {name: meta for name, meta in self.idle().items() if is_shown(meta) and key not in meta}
        task = asyncio.create_task(self._mark(unused, key), name=f"{key} copies")
        self._marking.add(task)
        task.add_done_callback(self._marking.discard)
        return unused

    async def _mark(self, names: Collection[str], key: str) -> None:
        # The disk's own metas: another task may change or delete the copies meanwhile.
        batch = await self.access.guard(lambda: mark_copies(self.access.disk, names, key))
        if batch is not None:
            self._written(batch)

    async def drop(self, names: Collection[str]) -> None:
        """Delete these copies, except those that a running source uses."""
        await self.access.write(*(dropped_copy(name) for name in self.idle().keys() & names))

    def _written(self, batch: Batch) -> None:
        for name, row in batch.get(METAS, TableChanges({})).rows.items():
            self.metas.pop(name, None)
            self.metas |= read_metas({name: bytes(row) if row is not None else None})

    def _lost(self) -> None:
        self.metas.clear()
        for copy in self._copies:
            copy.rewrite()


class DiskCopy:
    """A source's copy on disk, written as a listener of the store."""

    def __init__(self, copies: DiskCopies, identity: str, list_watch: ListWatch, store: Store) -> None:
        self._copies = copies
        self._list_watch = list_watch
        self._identity = identity
        self._store = store
        self.name = source_name(identity, list_watch)
        self.table = WriteBehind(
            copies.access, objects_of(self.name), batch=self._batch, all_rows=self._objects
        )
        self.is_starting = False
        """Whether no client may see the store yet: it may lack the copy, or the cloud's changes since."""
        self._refused, self._is_discarded = 0, False
        self.is_followed = True
        self._last_used = int(copies.access.clock())
        self._stamped = False
        """Whether the time of last use on disk is recent."""
        self.former, self.has_checkpoints = Checkpoints(), False
        self.checkpoints: Callable[[], Checkpoints] = Checkpoints
        store.listen(self)

    def close(self) -> None:
        """Stop following the store, and write the remaining changes, once."""
        last = self.checkpoints()
        self.checkpoints = lambda: last
        self._store.forget(self)
        self.table.finish()
        self._copies.forget(self)

    @property
    def is_written(self) -> bool:
        return self.table.is_written

    def start(self, reflector: Reflector) -> Coroutine[None, None, None]:
        """Begin from this copy: the returned coroutine runs the reflector until cancelled."""
        self.is_starting = True
        return self._run(reflector)

    async def _run(self, reflector: Reflector) -> None:
        path = self._list_watch.path
        reading = asyncio.create_task(self.restore(), name=f"copy of {path}")
        reflecting: asyncio.Task[None] | None = None
        try:
            await asyncio.wait((reading,), timeout=DISK_TIMEOUT)
            was_read = reading.done()
            reflecting = asyncio.create_task(reflector.run(), name=f"reflector {path}")
            if was_read:
                await completes_within(CONFIRM, _resumed(reflector))
            else:
                # The copy or the cloud's list, whichever comes first.
                while not reading.done() and not self._store.complete:
                    updated = self._store.next_update()
                    await asyncio.wait((reading, updated), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and (refusal := reading.result()) is not None:
                # The cloud's own answer goes before a stored refusal.
                await completes_within(CONFIRM, _answered(reflector, self._store))
                if not self._store.complete and reflector.refusal is None:
                    reflector.remember_refusal(refusal)
            self.is_starting = False
            reflector.changed.notify()
            while not reflecting.done():
                if reflector.state is State.WATCHING:
                    self.follow(is_followed=True)
                await reflector.changed.wait()
            await reflecting
        finally:
            reading.cancel()
            if reflecting is not None:
                reflecting.cancel()

    async def restore(self) -> StatusError | None:
        """Fill the store from the copy, if there is one. Return the cloud's 403 or 404 if that is stored instead."""
        name, access = self.name, self._copies.access
        losses = access.disk.lost
        read = await access.guard(lambda: read_copy(access.disk, name))
        if read is None or self._store.complete:
            return None
        meta, raws = read
        self._stamped = access.is_recent(meta.get("asked", 0))
        self.is_followed = UNFOLLOWED not in meta
        if "refused" in meta:
            return refusal_of(meta["refused"], self._list_watch.type.group_resource)
        try:
            codec = codec_for(Encoding(meta["encoding"]))
            items = await read_items(self._store, codec, raws)
        except (KeyError, TypeError, ValueError) as error:
            logger.error(
                "the copy of %s cannot be read (%s); it is fetched again", self._list_watch.path, error
            )
            return None
        if self._store.complete:
            return None  # the cloud was faster
        if FORMER_HISTORY in meta:
            self._store.set_previous_objects(meta["version"], items)
            return None
        self._store.replace_items(codec, meta["apiVersion"], meta["kind"], meta["version"], items)
        self._store.last_event = last_event_of(meta)
        if access.disk.lost == losses:  # the database may have been set aside since
            self.table.forget()
        self._load_history(meta)
        for listener in self._copies.on_read:
            listener(self._list_watch, self._store)
        if not self._stamped:
            self.table.change()
        return None

    def _load_history(self, meta: Meta) -> None:
        """Take an earlier process's history, and its views' checkpoints."""
        if (past := past_of(meta)) is not None:
            self._store.history.recall(past)
        for key, version in applied_in(meta):
            self._store.recall(key, version)
        if meta.get("process") != self._copies.process:
            self.former = checkpoints_of(meta)
        self.has_checkpoints = True

    def write_checkpoints(self) -> None:
        self.table.change()

    async def withdraw(self) -> None:
        self.table.change(is_urgent=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WITHDRAWAL_TIMEOUT):
                await self.table.settled()

    def rewrite(self) -> None:
        """Write the complete source now: its rows are lost, and a quiet source may have no change for long."""
        self.table.rewrite()

    def use(self) -> None:
        """Record that a client lists or watches."""
        if not self._copies.access.is_recent(self._last_used):
            self._last_used, self._stamped = int(self._copies.access.clock()), False
        if not self._stamped:
            self.table.change()

    def follow(self, *, is_followed: bool) -> None:
        if is_followed is not self.is_followed:
            self.is_followed = is_followed
            self.table.change()
        if is_followed:
            self._copies.went_online()

    def refused(self, refusal: StatusError) -> None:
        """Delete a copy that the cloud no longer shows (403), and remember that it has no such resource (404)."""
        if refusal.code in (403, 404):
            self._refused = refusal.code
            self.table.rewrite()

    def discard(self) -> None:
        """Delete the copy. Unlike a refusal, this does not affect the next clients."""
        self._is_discarded = True
        self.table.rewrite()

    def changed(self, change: Change) -> None:
        self._end_refusal()
        is_own = (
            change.old is not None and change.new is not None and change.old.version == change.new.version
        )
        item = change.new.stored if change.new is not None else None
        if item is None and change.is_local:
            # The cloud's own event deletes it, here and at clients that come back after a restart.
            self.table.change(is_urgent=True)
            return
        # The node's own write at once: the copy must reach the disk before the journal's entry for the same write.
        self.table.put(object_name(change.key), item, is_urgent=is_own)

    def advanced(self) -> None:
        self._end_refusal()
        # A doubt at once: a killed process must not leave the copy for the next one to show.
        self.table.change(is_urgent=self._store.complete and not self._store.may_be_shown)

    def restarted(self) -> None:
        self.table.rewrite()

    def _end_refusal(self) -> None:
        """Write the complete copy again: the cloud serves the source after a refusal, which had deleted it."""
        if self._refused:
            self._refused = 0
            self.table.rewrite()

    def _objects(self) -> Mapping[str, StoredText]:
        stored_rows = {} if self._refused else {object_name(item.key): item.stored for item in self._store}
        return stored_rows | {
            object_name(item.key): item.stored for item in self._store.applied.deletions.values()
        }

    def _batch(self, objects: TableChanges) -> Batch | None:
        """Return the objects together with the metadata of the copy; None before there are any."""
        store = self._store
        if self._is_discarded:
            return dropped_copy(self.name)
        if not self._refused and not store.complete:
            return None
        meta: Meta = {
            "identity": self._identity,
            "question": described(self._list_watch),
            "asked": self._last_used,
            "version": store.version,
            "witness": [*store.last_event.key, store.last_event.version]
            if store.last_event is not None
            else [],
            "bytes": store.size,
            "apiVersion": store.api_version,
            "kind": store.kind,
            "encoding": store.codec.encoding if store.complete else self._list_watch.encoding,
            COUNT: len(objects.rows)
            if objects.replaces_all
            else len(store.applied.deletions) + (len(store) if not self._refused else 0),
            "past": [*store.history.past(store.version)],
        }
        if (now := self.checkpoints()).of_filters:
            meta |= {"process": self._copies.process, **now.described()}
        self.has_checkpoints = "checkpoints" in meta
        if store.applied:
            meta[APPLIED_WRITES] = [[*key, one.version] for key, one in store.applied.items()]
        if self._refused:
            meta["refused"] = self._refused
        elif store.complete and not store.may_be_shown:
            meta[FORMER_HISTORY] = True
        if not self.is_followed:
            meta[UNFOLLOWED] = True
        self._stamped = True
        return copy_batch(self.name, meta, objects)


async def _resumed(reflector: Reflector) -> None:
    """Wait until a reflector has resumed from its copy, has listed instead, or has failed."""
    while not reflector.lists and reflector.state is not State.WATCHING and reflector.error is None:
        await reflector.changed.wait()
    if not reflector.lists and reflector.state is State.WATCHING:
        await asyncio.sleep(RESUME_SETTLE_TIME)


async def _answered(reflector: Reflector, store: Store) -> None:
    """Wait until the cloud has answered a list, or the source has failed."""
    while not store.complete and reflector.refusal is None and reflector.error is None:
        await reflector.changed.wait()
