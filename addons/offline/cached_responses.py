"""The cloud's answers to single requests, kept for an outage: objects, consistent lists, discovery.

The bodies are on disk; the index is in memory too. What is kept is bounded in shares, so that no caller can push out
the answers of another: the node's own answers make way for nothing but the node's own. Within a share the answer that
nobody used for longest goes first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import orjson

from addons.offline.cached_response import MAX_BODY, CachedResponse, ResponseKey
from addons.offline.copies import DiskCopies
from addons.telemetry import metrics
from kube.bounds import reached
from kube.disk.writer import PATIENCE

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all answers."""
MAX_RESPONSES = 5000
OTHERS_BYTES = 16 * 1024 * 1024
"""Bytes of the answers to all callers but the node: a quarter of MAX_BYTES."""
OTHERS_RESPONSES = 1000
IDENTITY_BYTES = 4 * 1024 * 1024
"""Bytes of the answers to one caller but the node: one of the largest, or some hundred usual ones."""
IDENTITY_RESPONSES = 250
MAX_UNWRITTEN_BYTES = 16 * 1024 * 1024
"""Bytes of answers that wait for the disk. Beyond them, answers are not kept until the disk is back."""
BATCH_BYTES = 4 * 1024 * 1024
"""Bytes after which a transaction takes no further answer."""

TABLE, INDEX = "answers", "answers.index"
"""The tables on disk: bodies, and entries of the index."""

Rows = Mapping[str, Mapping[str, bytes | None]]
"""Rows to write, by table and name; None deletes a row."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What the index holds of an answer. `last_used` is wall time in seconds, within an hour of the truth."""

    digest: str
    size: int
    last_used: int
    owner: str = ""

    def encode(self) -> bytes:
        return orjson.dumps((self.digest, self.size, self.last_used, self.owner))


@dataclass(slots=True)
class Share:
    """The answers of one owner, the least recently used first."""

    names: OrderedDict[str, None] = field(default_factory=OrderedDict)
    size: int = 0


class Shares:
    """The index: entries by name, and whose they are. Pure."""

    def __init__(self) -> None:
        self.entries: dict[str, IndexEntry] = {}
        self._shares: dict[str, Share] = {}

    def put(self, name: str, entry: IndexEntry) -> None:
        """Add an entry, or replace the one of its name, as the last that its owner used."""
        self.remove(name)
        self.entries[name] = entry
        share = self._shares.setdefault(entry.owner, Share())
        share.names[name] = None
        share.size += entry.size

    def use(self, name: str, entry: IndexEntry) -> None:
        """Make an entry the last that its owner used."""
        self.entries[name] = entry
        self._shares[entry.owner].names.move_to_end(name)

    def remove(self, name: str) -> bool:
        """Remove an entry, if there is one of that name."""
        entry = self.entries.pop(name, None)
        if entry is None:
            return False
        share = self._shares[entry.owner]
        del share.names[name]
        share.size -= entry.size
        if not share.names:
            del self._shares[entry.owner]
        return True

    def evict(self, owner: str) -> Iterator[str]:
        """Remove entries until all bounds hold again after a `put` of an owner; the names of the removed ones."""
        if owner:
            while self._is_over([self._shares[owner]], IDENTITY_BYTES, IDENTITY_RESPONSES):
                yield self._evict_from(owner)
        while self._is_over(self._others, OTHERS_BYTES, OTHERS_RESPONSES):
            yield self._evict_from(self._largest_other)
        while self._is_over(self._shares.values(), MAX_BYTES, MAX_RESPONSES):
            yield self._evict_from(self._largest_other if self._others else "")

    @property
    def _others(self) -> list[Share]:
        return [share for owner, share in self._shares.items() if owner]

    @property
    def _largest_other(self) -> str:
        return max((owner for owner in self._shares if owner), key=lambda owner: self._shares[owner].size)

    def _is_over(self, shares: Collection[Share], max_bytes: int, max_entries: int) -> bool:
        entries = sum(len(share.names) for share in shares)
        return entries > 1 and (entries > max_entries or sum(share.size for share in shares) > max_bytes)

    def _evict_from(self, owner: str) -> str:
        name = next(iter(self._shares[owner].names))
        self.remove(name)
        metrics.RESPONSES_EVICTED.labels("other" if owner else "node").inc()
        return name


class CachedResponses:
    """The kept answers. One task writes them: a disk that hangs holds up one batch and the bounded rest."""

    def __init__(self, copies: DiskCopies) -> None:
        self._copies = copies
        self._shares = Shares()
        self._lost = copies.disk.lost
        self._on_disk: set[str] = set()
        """The names of which the disk may hold a row."""
        self._unwritten: dict[str, CachedResponse | None] = {}
        """Answers that wait for the disk, and None for those to be deleted there."""
        self._unwritten_bytes = 0
        self._used: set[str] = set()
        """Names whose time of last use waits for the disk."""
        self._writing: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        copies.on_restore.append(self._forget_all)

    async def open(self) -> None:
        """Read the index. Wait PATIENCE at most: a slow disk delivers it later."""
        self._loading = asyncio.create_task(self._load(), name="index of kept answers")
        await asyncio.wait((self._loading,), timeout=PATIENCE)

    @property
    def index(self) -> Mapping[str, IndexEntry]:
        """What is kept, by name."""
        return self._shares.entries

    def keep(self, key: ResponseKey, headers: Mapping[str, str], body: bytes) -> None:
        """Keep an answer, in the place of an earlier one of the same key. Never waits."""
        self.put(key, CachedResponse.of(headers, body))

    def put(self, key: ResponseKey, response: CachedResponse) -> None:
        """As `keep`, for an answer of one page or several."""
        if response.size > MAX_BODY:
            reached("kept answer")
            return
        self._forget_lost()
        name, digest = key.name, _digest(response)
        known = self._shares.entries.get(name)
        if known is not None and known.digest == digest:
            self._use(name)
            return
        waiting = self._unwritten.get(name)
        if self._unwritten_bytes - _size(waiting) + response.size > MAX_UNWRITTEN_BYTES:
            metrics.RESPONSES_UNKEPT.inc()
            self._shares.remove(name)
            self._delete_row(name)
        else:
            self._shares.put(name, IndexEntry(digest, response.size, int(self._copies.clock()), key.owner))
            self._wait_for_disk(name, response)
            for evicted in self._shares.evict(key.owner):
                self._delete_row(evicted)
        self._write()

    async def get(self, key: ResponseKey) -> CachedResponse | None:
        """The kept answer of a key; None where there is none, or the disk does not give it."""
        self._forget_lost()
        name = key.name
        if name not in self._shares.entries:
            return None
        self._use(name)
        waiting = self._unwritten.get(name)
        if waiting is not None:
            return waiting
        disk = self._copies.disk
        value = await self._copies.ask(lambda: disk.value(TABLE, name))
        return CachedResponse.load(value) if value is not None else None

    async def drop(self, names: Collection[str]) -> None:
        """Delete these answers, also from disk."""
        for name in names:
            self.forget(name)
        await self.written()

    def forget(self, name: str) -> None:
        """Delete an answer, also from disk, if there is one of that name. Never waits."""
        if self._shares.remove(name):
            self._delete_row(name)
            self._write()

    def _forget_all(self) -> None:
        """Delete every answer: what a restored cloud says now may have lower versions, and is newer."""
        for name in list(self._shares.entries):
            self.forget(name)

    async def written(self) -> None:
        """Return when no answer waits for the disk."""
        while self._writing is not None and not self._writing.done():
            await asyncio.wait((self._writing,))

    def close(self) -> Rows:
        """Stop writing, and return the rows that are not on disk yet for the process's last write."""
        for task in (self._loading, self._writing):
            if task is not None:
                task.cancel()
        return self._rows(self._unwritten, self._used)

    async def _load(self) -> None:
        disk = self._copies.disk
        found = await self._copies.guard(lambda: disk.values(INDEX)) or {}
        entries = [(name, IndexEntry(*orjson.loads(value))) for name, value in found.items()]
        self._on_disk.update(found)
        # What was kept since is newer than what the disk has.
        newer = list(self._shares.entries.items())
        for name, entry in [*sorted(entries, key=lambda each: each[1].last_used), *newer]:
            self._shares.put(name, entry)

    def _use(self, name: str) -> None:
        entry = self._shares.entries[name]
        if not self._copies.is_recent(entry.last_used):
            entry = replace(entry, last_used=int(self._copies.clock()))
            self._used.add(name)
            self._write()
        self._shares.use(name, entry)

    def _wait_for_disk(self, name: str, response: CachedResponse | None) -> None:
        self._unwritten_bytes += _size(response) - _size(self._unwritten.get(name))
        self._unwritten[name] = response

    def _delete_row(self, name: str) -> None:
        """Let the disk forget an answer. One that the disk never got leaves nothing to write."""
        self._wait_for_disk(name, None)
        if name not in self._on_disk:
            del self._unwritten[name]

    def _forget_lost(self) -> None:
        """Forget what was in a database that had to be set aside, so that it is written when it comes again."""
        if self._lost != self._copies.disk.lost:
            self._lost = self._copies.disk.lost
            self._on_disk.clear()
            for name in list(self._shares.entries):
                if name not in self._unwritten:
                    self._shares.remove(name)

    def _write(self) -> None:
        if (self._unwritten or self._used) and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_all(), name="kept answers to disk")

    async def _write_all(self) -> None:
        """Write batches until nothing waits. A batch that fails is forgotten, for the disk may hang or be full."""
        await asyncio.sleep(0)  # the loop starts tasks eagerly: let the caller finish its turn
        while self._unwritten or self._used:
            batch, size = {}, 0
            for name, response in self._unwritten.items():
                batch[name], size = response, size + _size(response)
                if size > BATCH_BYTES:
                    break
            used, self._used = self._used, set()
            self._on_disk.update(name for name, response in batch.items() if response is not None)
            rows = self._rows(batch, used)
            work: Callable[[], None] = partial(self._copies.disk.put_all, rows)
            written = await self._copies.write(work)
            for name, response in batch.items():
                if response is None and written:
                    self._on_disk.discard(name)
                if self._unwritten.get(name, self) is response:
                    self._unwritten_bytes -= _size(response)
                    del self._unwritten[name]
                    if not written:
                        self._shares.remove(name)

    def _rows(self, batch: Mapping[str, CachedResponse | None], used: Collection[str]) -> Rows:
        """The rows of a batch: bodies, and the index with them, for neither is of use without the other."""
        entries = self._shares.entries
        index: dict[str, bytes | None] = {name: entries[name].encode() for name in used if name in entries}
        bodies: dict[str, bytes | None] = {}
        for name, response in batch.items():
            bodies[name] = response.dump() if response is not None else None
            index[name] = entries[name].encode() if response is not None else None
        return {TABLE: bodies, INDEX: index}


def _size(response: CachedResponse | None) -> int:
    return response.size if response is not None else 0


def _digest(response: CachedResponse) -> str:
    digest = hashlib.sha256(response.body)
    for _, page in response.further:
        digest.update(page.body)
    return digest.hexdigest()
