"""The cloud's answers to single requests, kept for an outage: objects, consistent lists, discovery.

The bodies are on disk; the index is in memory too. What is kept is bounded in shares, so that no caller can push out
the answers of another: the node's own answers make way for nothing but the node's own. Within a share the answer that
nobody used for longest goes first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from addons.offline.cached_response import MAX_KEPT, CachedResponse, ResponseKey
from addons.offline.disk_access import DiskAccess
from addons.offline.write_behind import WriteBehind
from addons.telemetry import metrics
from kube.bounds import reached
from kube.disk.database import Batch, TableChanges
from kube.disk.rows import table_of

MAX_ALL_KEPT = 64 * 1024 * 1024
"""Bytes of all answers."""
MAX_RESPONSES = 5000
OTHERS_BYTES = 16 * 1024 * 1024
"""Bytes of the answers to all callers but the node: a quarter of MAX_ALL_KEPT."""
OTHERS_RESPONSES = 1000
IDENTITY_BYTES = 4 * 1024 * 1024
"""Bytes of the answers to one caller but the node: one of the largest, or some hundred usual ones."""
IDENTITY_RESPONSES = 250

TABLE, INDEX = table_of("answers"), table_of("answers.index")
"""The tables on disk: bodies, and entries of the index."""


class IndexEntry(NamedTuple):
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
        self.entries[name] = entry
        self._shares[entry.owner].names.move_to_end(name)

    def remove(self, name: str) -> bool:
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
        while self._is_over(self._shares.values(), MAX_ALL_KEPT, MAX_RESPONSES):
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
    """The kept answers. Those that wait for the disk are answered from memory."""

    def __init__(self, access: DiskAccess) -> None:
        self._access = access
        self._shares = Shares()
        self._used: set[str] = set()
        """Names whose time of last use waits for the disk."""
        self._bodies = WriteBehind(access, TABLE, batch=self._batch)
        access.on_loss.append(self._forget_lost)

    async def open(self) -> None:
        """Read the index. A slow disk delivers it later."""
        await self._bodies.open(self._take, INDEX)

    @property
    def index(self) -> Mapping[str, IndexEntry]:
        """What is kept, by name."""
        return self._shares.entries

    def keep(self, key: ResponseKey, headers: Mapping[str, str], body: bytes) -> None:
        """Keep an answer, in the place of an earlier one of the same key. Never waits."""
        self.put(key, CachedResponse.of(headers, body))

    def put(self, key: ResponseKey, response: CachedResponse) -> None:
        """As `keep`, for an answer of one page or several."""
        if response.size > MAX_KEPT:
            reached("kept answer")
            return
        name, digest = key.name, _digest(response)
        known = self._shares.entries.get(name)
        if known is not None and known.digest == digest:
            self._use(name)
        elif self._bodies.put(name, response.dump(), is_urgent=True):
            self._shares.put(name, IndexEntry(digest, response.size, int(self._access.clock()), key.owner))
            for evicted in self._shares.evict(key.owner):
                self._bodies.delete(evicted)
        else:
            metrics.RESPONSES_UNKEPT.inc()
            self.forget(name)

    async def get(self, key: ResponseKey) -> CachedResponse | None:
        """The kept answer of a key; None where there is none, or the disk does not give it."""
        name, disk = key.name, self._access.disk
        if name not in self._shares.entries:
            return None
        self._use(name)
        waiting = self._bodies.waiting.get(name)
        value = (
            bytes(waiting) if waiting is not None else await self._access.ask(lambda: disk.value(TABLE, name))
        )
        return CachedResponse.load(value) if value is not None else None

    def forget(self, name: str) -> None:
        """Delete an answer, also from disk, if there is one of that name. Never waits."""
        if self._shares.remove(name):
            self._bodies.delete(name)

    def forget_all(self) -> None:
        """Delete every answer: what a restored cloud says now may have lower versions, and is newer."""
        for name in list(self._shares.entries):
            self.forget(name)

    async def written(self) -> None:
        """Return when no answer waits for the disk."""
        await self._bodies.settled()

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        """Take the index of an earlier process. The names of entries that cannot be read."""
        entries = {name: IndexEntry(*orjson.loads(row)) for name, row in rows.items() if row is not None}
        # What was kept since is newer than what the disk has.
        newer = list(self._shares.entries.items())
        for name, entry in [*sorted(entries.items(), key=lambda item: item[1].last_used), *newer]:
            self._shares.put(name, entry)
        return rows.keys() - self._shares.entries.keys()

    def _use(self, name: str) -> None:
        entry = self._shares.entries[name]
        if not self._access.is_recent(entry.last_used):
            entry = entry._replace(last_used=int(self._access.clock()))
            self._used.add(name)
            self._bodies.change()
        self._shares.use(name, entry)

    def _forget_lost(self) -> None:
        """Forget what was in a database that had to be set aside, so that it is written when it comes again."""
        for name in self._shares.entries.keys() - self._bodies.waiting.keys():
            self._shares.remove(name)

    def _batch(self, bodies: TableChanges) -> Batch:
        """Bodies, and their entries of the index with them, for neither is of use without the other."""
        entries = self._shares.entries
        index = {
            name: entries[name].encode() if name in entries else None for name in (*self._used, *bodies.rows)
        }
        self._used.clear()
        return {TABLE: bodies, INDEX: TableChanges(index)}


def _digest(response: CachedResponse) -> str:
    digest = hashlib.sha256(response.body)
    for _, page in response.further:
        digest.update(page.body)
    return digest.hexdigest()
