"""The cloud's responses to single requests, cached for an outage: objects, consistent lists, discovery.

The bodies are on disk; the index is in memory too. Each owner has a bounded share, so that no caller can evict the
responses of another, or the node's own. Within a share, the least recently used response is evicted first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from addons.offline.cached_response import MAX_CACHED, CachedResponse, ResponseKey, about_of
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.telemetry import metrics
from kube.bounds import reached
from kube.disk.database import Batch, TableChanges
from kube.disk.rows import table_of
from kube.requests.object_ref import ObjectRef

MAX_ALL_CACHED = 64 * 1024 * 1024
"""Bytes of all answers."""
MAX_RESPONSES = 5000
OTHERS_BYTES = 16 * 1024 * 1024
"""Bytes of the answers to all callers except the node: a quarter of MAX_ALL_CACHED."""
OTHERS_RESPONSES = 1000
IDENTITY_BYTES = 4 * 1024 * 1024
"""Bytes of the answers to one caller other than the node: one of the largest, or some hundred of usual size."""
IDENTITY_RESPONSES = 250

OLD_ENTRY_FIELDS = ("digest", "size", "last_used", "owner")
"""The fields of an index entry in releases without `question`."""
TABLE, INDEX = table_of("answers"), table_of("answers.index")
"""The tables on disk: bodies, and entries of the index."""


class IndexEntry(NamedTuple):
    """The index entry of an answer. `last_used` is wall time in seconds, accurate to an hour."""

    digest: str
    size: int
    last_used: int
    owner: str = ""
    about: str = ""
    question: str = ""
    """The question of a `ResponseKey`."""

    def encode(self) -> bytes:
        return orjson.dumps(tuple(self))


@dataclass(slots=True)
class Share:
    """The answers of one owner, the least recently used first."""

    names: OrderedDict[str, None] = field(default_factory=OrderedDict)
    size: int = 0


class Shares:
    """The index: entries by name, and their owners. Pure."""

    def __init__(self) -> None:
        self.entries: dict[str, IndexEntry] = {}
        self._shares: dict[str, Share] = {}
        self._about: dict[str, dict[str, None]] = {}
        """The names of the entries about each object."""

    def put(self, name: str, entry: IndexEntry) -> None:
        """Add or replace an entry, as the most recently used of its owner."""
        self.remove(name)
        self.entries[name] = entry
        share = self._shares.setdefault(entry.owner, Share())
        share.names[name] = None
        share.size += entry.size
        if entry.about:
            self._about.setdefault(entry.about, {})[name] = None

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
        if (names := self._about.get(entry.about)) is not None:
            del names[name]
            if not names:
                del self._about[entry.about]
        return True

    def about(self, ref: ObjectRef) -> list[str]:
        """Return the names of the entries that may hold an object; of all entries about objects if `ref` names none."""
        if ref.name:
            texts = {ref.text, ref.named("").text, ref._replace(namespace="", name="").text}
        else:
            texts = {text for text in self._about if ref.meets(ObjectRef(*text.split("/")))}
        return [name for text in texts for name in self._about.get(text, ())]

    def evict(self, owner: str) -> Iterator[str]:
        """Remove entries until all bounds hold after a `put` of an owner; return the names of the removed ones."""
        if owner:
            while self._is_over([self._shares[owner]], IDENTITY_BYTES, IDENTITY_RESPONSES):
                yield self._evict_from(owner)
        while self._is_over(self._others, OTHERS_BYTES, OTHERS_RESPONSES):
            yield self._evict_from(self._largest_other)
        while self._is_over(self._shares.values(), MAX_ALL_CACHED, MAX_RESPONSES):
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
    """The cached answers. Those not yet on disk are served from memory."""

    def __init__(self, access: DiskAccess) -> None:
        self._access = access
        self._shares = Shares()
        self._used: set[str] = set()
        """Names whose time of last use is not on disk yet."""
        self._bodies = WriteBehind(access, TABLE, batch=self._batch)
        self._former: set[str] = set()
        """Names of entries of an earlier release whose objects are not known yet."""
        access.on_loss.append(self._forget_lost_database)

    async def open(self) -> None:
        """Load the index. A slow disk delivers it later."""
        await self._bodies.open(self._take, INDEX)
        if self._former:
            await self._access.load(self._migrate_old_entries())

    @property
    def index(self) -> Mapping[str, IndexEntry]:
        """The index of cached answers, by name."""
        return self._shares.entries

    def cache_response(self, key: ResponseKey, headers: Mapping[str, str], body: bytes) -> None:
        """Store an answer, replacing an earlier one of the same key. Never waits."""
        if not self._has_used(key.name, hashlib.sha256(body).hexdigest()):
            self.put(key, CachedResponse.of(headers, body))

    def put(self, key: ResponseKey, response: CachedResponse) -> None:
        """Like `cache_response`, for an answer of one or more pages."""
        if response.size > MAX_CACHED:
            reached("kept answer")
            return
        name, digest = key.name, _digest(response)
        if self._has_used(name, digest):
            return
        self._former.discard(name)
        now = int(self._access.clock())
        entry = IndexEntry(digest, response.size, now, key.owner, key.about, key.question)
        self._put(name, entry, response)

    def renew(self, ref: ObjectRef, newest: CachedResponse) -> None:
        """Update a written object in each cached answer that has only this object, of any owner."""
        digest = _digest(newest)
        for name in self._shares.about(ref):
            entry = self._shares.entries.get(name)
            if entry is not None and entry.about == ref.text:
                self._put(name, entry._replace(digest=digest, size=newest.size), newest)
        self._forget_former()

    async def get(self, key: ResponseKey) -> CachedResponse | None:
        """Return the cached answer of a key; None if there is none, or the disk fails."""
        return await self._get(key.name) if key.name in self._shares.entries else None

    def is_recent(self, key: ResponseKey) -> bool:
        """Whether there is an answer that was used within the last hour."""
        entry = self._shares.entries.get(key.name)
        return entry is not None and self._access.is_recent(entry.last_used)

    async def in_all_forms(self, key: ResponseKey) -> list[CachedResponse]:
        """Return the cached answers to a request, that of the key first, then those in other forms."""
        own = await self.get(key)
        return [*([own] if own is not None else ()), *await self.in_other_forms(key)]

    async def in_other_forms(self, key: ResponseKey) -> list[CachedResponse]:
        """Return the cached answers to a request, without that of the key."""
        found = list[CachedResponse]()
        for name in self._forms(key):
            if name != key.name and name in self._shares.entries:
                answer = await self._get(name)
                if answer is not None:
                    found.append(answer)
        return found

    def _forms(self, key: ResponseKey) -> list[str]:
        """Return the names of the answers to a request, in each form."""
        ref, of_question = ObjectRef.parse(key.about), (key.owner, key.question)
        about = ((name, self._shares.entries[name]) for name in self._shares.about(ref)) if ref else ()
        return [name for name, entry in about if (entry.owner, entry.question) == of_question]

    async def _get(self, name: str) -> CachedResponse | None:
        disk = self._access.disk
        self._use(name)
        waiting = self._bodies.waiting.get(name)
        value = (
            bytes(waiting) if waiting is not None else await self._access.ask(lambda: disk.value(TABLE, name))
        )
        return CachedResponse.load(value) if value is not None else None

    def forget(self, name: str, *, is_urgent: bool = False) -> None:
        """Delete an answer, also from disk. Never waits."""
        if self._shares.remove(name):
            self._bodies.delete(name)
            if is_urgent:
                self._bodies.change(is_urgent=True)

    def forget_forms(self, key: ResponseKey) -> None:
        """Delete the answers to a request, in each form."""
        for name in (key.name, *self._forms(key)):
            self.forget(name)

    def holds(self, ref: ObjectRef, *, lists: bool = False) -> bool:
        """Whether any stored answer may hold an object; with `lists`, only lists count."""
        if self._former:
            return True
        about = (self._shares.entries[name].about for name in self._shares.about(ref))
        return any(not lists or is_list(text) for text in about)

    def forget_about(self, ref: ObjectRef, *, lists: bool = True, singles: bool = True) -> None:
        """Delete the answers, lists and single objects, that may hold a written object."""
        for name in self._shares.about(ref):
            if lists if is_list(self._shares.entries[name].about) else singles:
                self.forget(name, is_urgent=True)
        self._forget_former()

    def forget_all(self) -> None:
        """Delete every answer: the answers of a restored cloud are newer, though their versions may be lower."""
        for name in list(self._shares.entries):
            self.forget(name, is_urgent=True)

    async def written(self) -> None:
        """Return when all answers are on disk."""
        await self._bodies.settled()

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        """Load the index of an earlier process; return the names of unreadable entries."""
        read = {name: orjson.loads(row) for name, row in rows.items() if row is not None}
        self._former = {name for name, row in read.items() if len(row) <= len(OLD_ENTRY_FIELDS)}
        entries = {name: IndexEntry(*row) for name, row in read.items()}
        # Later responses are newer than the disk.
        newer = list(self._shares.entries.items())
        for name, entry in [*sorted(entries.items(), key=lambda item: item[1].last_used), *newer]:
            self._shares.put(name, entry)
        return rows.keys() - self._shares.entries.keys()

    def _put(self, name: str, entry: IndexEntry, response: CachedResponse) -> None:
        if self._bodies.put(name, response.dump(), is_urgent=True):
            self._shares.put(name, entry)
            for evicted in self._shares.evict(entry.owner):
                self._bodies.delete(evicted)
        else:
            metrics.RESPONSES_UNKEPT.inc()
            self.forget(name)

    def _forget_former(self) -> None:
        for name in self._former:
            self.forget(name, is_urgent=True)
        self._former.clear()

    async def _migrate_old_entries(self) -> None:
        """Find the objects in the answers of an earlier release, and delete answers for which that fails."""
        while self._former:
            name = next(iter(self._former))
            answer = await self._get(name) if name in self._shares.entries else None
            about = about_of(answer) if answer is not None else None
            if name not in self._former:
                continue  # a write has deleted it
            self._former.remove(name)
            if about is None:
                self.forget(name)
            elif name in self._shares.entries:
                self._shares.put(name, self._shares.entries[name]._replace(about=about))
                self._used.add(name)
                self._bodies.change()

    def _has_used(self, name: str, digest: str) -> bool:
        """Count this answer as used if it is stored, and its objects are known; return whether it is."""
        known = self._shares.entries.get(name)
        if known is None or known.digest != digest or name in self._former:
            return False
        self._use(name)
        return True

    def _use(self, name: str) -> None:
        entry = self._shares.entries[name]
        if not self._access.is_recent(entry.last_used):
            entry = entry._replace(last_used=int(self._access.clock()))
            self._used.add(name)
            self._bodies.change()
        self._shares.use(name, entry)

    def _forget_lost_database(self) -> None:
        """Drop the record of a database that had to be set aside, so that everything is written again."""
        for name in self._shares.entries.keys() - self._bodies.waiting.keys():
            self._shares.remove(name)

    def _batch(self, bodies: TableChanges) -> Batch:
        """Return the bodies together with their index entries: neither is useful without the other."""
        entries = self._shares.entries
        index = {
            name: entries[name].encode() if name in entries else None for name in (*self._used, *bodies.rows)
        }
        self._used.clear()
        return {TABLE: bodies, INDEX: TableChanges(index)}


def is_list(about: str) -> bool:
    """Whether an answer with this `about` has a list of objects."""
    return about.endswith("/")


def _digest(response: CachedResponse) -> str:
    digest = hashlib.sha256(response.body)
    for _, page in response.further:
        digest.update(page.body)
    return digest.hexdigest()
