"""Copies of single answers as they passed, for when the cloud is gone: objects, consistent lists, discovery.

Bounded in number and bytes; what was not needed for longest goes first. On disk in full, with an index that is also
kept in memory.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl

import orjson

from addons.offline.copies import DiskCopies
from kube.disk.writer import PATIENCE
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

MAX_BODY = 4 * 1024 * 1024
"""Bytes of one answer: OpenAPI v2 of a large cluster is about as large as that, packed."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all answers."""
MAX_ANSWERS = 5000

TABLE, INDEX = "answers", "answers.index"
ABOUT_THE_REQUEST = frozenset(
    {"resourceVersion", "resourceVersionMatch", "timeout", "timeoutSeconds", "limit"}
)
"""Parameters that do not change which objects an answer has."""
KEPT_HEADERS = ("content-type", "content-encoding", "etag", "vary")


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """An answer that a client got, as it was on the wire."""

    headers: Mapping[str, str]
    body: bytes

    def single(self) -> Encoded:
        """The object in it; ValueError where there is none."""
        return Encoded.read(codec_for(self._encoding), self._unpacked())

    def is_whole(self) -> bool:
        """Whether it is a list of which no further page is to come; a Table is one, too."""
        try:
            if self._encoding is Encoding.PROTOBUF:
                return not codec_for(Encoding.PROTOBUF).decode_list(self._unpacked()).continue_token
            metadata = orjson.loads(self._unpacked())["metadata"]
            return not metadata.get("continue")
        except (ValueError, LookupError, TypeError, AttributeError):
            return False

    @property
    def _encoding(self) -> Encoding:
        return Encoding(self.headers.get("content-type", "").partition(";")[0].strip())

    def _unpacked(self) -> bytes:
        try:
            packed = self.headers.get("content-encoding") == "gzip"
            return gzip.decompress(self.body) if packed else self.body
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be unpacked: {error}") from error


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What the index knows of an answer. `asked` is wall time, the last question's, within ASKED_STEP."""

    digest: str
    size: int
    asked: int

    def encode(self) -> bytes:
        return orjson.dumps((self.digest, self.size, self.asked))


class CachedResponses:
    """The copies, by whose they are, what was asked and in which form."""

    def __init__(self, copies: DiskCopies) -> None:
        self._copies = copies
        self._index: OrderedDict[str, IndexEntry] = OrderedDict()
        self._bytes = 0
        self._lost = copies.disk.lost
        self._unwritten: dict[str, CachedResponse] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    async def open(self) -> None:
        """Learn what is kept; from a slow disk somewhat later."""
        await asyncio.wait((self._begin(self._load()),), timeout=PATIENCE)

    async def _load(self) -> None:
        disk = self._copies.disk
        found = await self._copies.guard(lambda: disk.values(INDEX)) or {}
        entries = [(name, IndexEntry(*orjson.loads(value))) for name, value in found.items()]
        # What passed meanwhile is newer than what is on disk.
        passed = list(self._index.items())
        for name, entry in [*sorted(entries, key=lambda each: each[1].asked), *passed]:
            self._note(name, entry)

    @property
    def index(self) -> Mapping[str, IndexEntry]:
        """What is kept."""
        return self._index

    async def drop(self, names: Collection[str]) -> None:
        """Keep these answers no longer."""
        changes: dict[str, bytes | None] = {name: None for name in names if self._forget(name)}
        if changes:
            await self._put(changes, {})

    def keep(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Copy an answer, behind the client's back."""
        if len(body) > MAX_BODY:
            return
        self._forget_lost()
        digest = hashlib.sha256(body).hexdigest()
        known = self._index.get(name)
        if known is not None and known.digest == digest:
            self._use(name)
            return
        kept = {header: headers[header] for header in KEPT_HEADERS if header in headers}
        self._note(name, IndexEntry(digest, len(body), int(self._copies.clock())))
        changes: dict[str, bytes | None] = {name: orjson.dumps(kept) + b"\n" + body}
        while len(self._index) > 1 and (self._bytes > MAX_BYTES or len(self._index) > MAX_ANSWERS):
            oldest = next(iter(self._index))
            self._forget(oldest)
            changes[oldest] = None
        self._unwritten[name] = CachedResponse(kept, body)
        self._begin(self._write(name, changes))

    async def get(self, name: str) -> CachedResponse | None:
        self._forget_lost()
        if name not in self._index:
            return None
        self._use(name)
        if name in self._unwritten:
            return self._unwritten[name]
        disk = self._copies.disk
        value = await self._copies.ask(lambda: disk.value(TABLE, name))
        if value is None:
            return None
        head, _, body = value.partition(b"\n")
        return CachedResponse(orjson.loads(head), body)

    async def _write(self, name: str, changes: dict[str, bytes | None]) -> None:
        answer, entry = self._unwritten[name], self._index[name]
        written = await self._put(changes, {name: entry.encode()})
        if self._unwritten.get(name) is answer:
            del self._unwritten[name]
            if not written and self._index.get(name) is entry:
                # What was on disk before is old by now; the next answer that passes is written again.
                self._forget(name)

    async def _put(self, changes: Mapping[str, bytes | None], index: Mapping[str, bytes | None]) -> bool:
        """Write answers, and the index with them: neither is of use without the other."""
        disk = self._copies.disk
        gone: dict[str, bytes | None] = {name: None for name, value in changes.items() if value is None}
        tables = {TABLE: changes, INDEX: {**index, **gone}}
        return await self._copies.write(lambda: disk.put_all(tables))

    def _begin(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        task = asyncio.create_task(work, name="copy of an answer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _forget_lost(self) -> None:
        """What was in a store that had to be set aside must be written again when it passes."""
        if self._lost != self._copies.disk.lost:
            self._lost = self._copies.disk.lost
            self._index.clear()
            self._bytes = 0

    def _use(self, name: str) -> None:
        """Somebody asks for it."""
        self._index.move_to_end(name)
        entry = self._index[name]
        if name not in self._unwritten and not self._copies.is_recent(entry.asked):
            used = self._index[name] = replace(entry, asked=int(self._copies.clock()))
            self._begin(self._put({}, {name: used.encode()}))

    def _note(self, name: str, entry: IndexEntry) -> None:
        self._forget(name)
        self._bytes += entry.size
        self._index[name] = entry

    def _forget(self, name: str) -> bool:
        entry = self._index.pop(name, None)
        self._bytes -= entry.size if entry is not None else 0
        return entry is not None


def is_too_large(headers: Mapping[str, str]) -> bool:
    """Whether an answer says that it is too large to be copied."""
    length = headers.get("content-length", "")
    return length.isdecimal() and int(length) > MAX_BODY


def answer_name(identity: str, target: str, accept: str, accept_encoding: str, body: bytes = b"") -> str:
    """A name for an answer: the same for requests whose answers have the same objects and form."""
    path, _, query = target.partition("?")
    asked = sorted(
        pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] not in ABOUT_THE_REQUEST
    )
    question = orjson.dumps((identity, path, asked, accept, accept_encoding))
    return hashlib.sha256(question + body).hexdigest()[:32]
