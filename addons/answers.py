"""Copies of single answers as they passed, for when the cloud is gone: objects, consistent lists, discovery.

Bounded in number and bytes; what was not needed for longest goes first. Kept in memory as an index, on disk in full.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

import orjson

from addons.copies import Copies
from kube.codec import Codec, codec_for
from kube.encoding import Encoding

MAX_BODY = 4 * 1024 * 1024
"""Bytes of one answer: OpenAPI v2 of a large cluster is about as large as that, packed."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all answers."""
MAX_ANSWERS = 5000

TABLE = "answers"
ABOUT_THE_REQUEST = frozenset(
    {"resourceVersion", "resourceVersionMatch", "timeout", "timeoutSeconds", "limit"}
)
"""Parameters that do not change which objects an answer has."""
KEPT_HEADERS = ("content-type", "content-encoding", "etag", "vary")


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer that a client got, as it was on the wire."""

    headers: Mapping[str, str]
    body: bytes

    def single(self) -> tuple[Codec, str, str, bytes]:
        """The object in it: codec, apiVersion, kind and raw form. ValueError where there is none."""
        codec = codec_for(Encoding(self.headers.get("content-type", "").partition(";")[0].strip()))
        try:
            packed = self.headers.get("content-encoding") == "gzip"
            body = gzip.decompress(self.body) if packed else self.body
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be unpacked: {error}") from error
        return codec, *codec.decode_single(body)


class Answers:
    """The copies, by whose they are, what was asked and in which form."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._index: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._bytes = 0
        self._unwritten: dict[str, KeptAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Learn what is kept."""
        disk = self._copies.disk
        found = await self._copies.guard(lambda: {n: len(v) for n, v in disk.values(TABLE).items()})
        for name, size in (found or {}).items():
            self._note(name, "", size)

    def keep(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Copy an answer, behind the client's back."""
        if len(body) > MAX_BODY:
            return
        digest = hashlib.sha256(body).hexdigest()
        if self._index.get(name, ("", 0))[0] == digest:
            self._index.move_to_end(name)
            return
        kept = {header: headers[header] for header in KEPT_HEADERS if header in headers}
        self._note(name, digest, len(body))
        changes: dict[str, bytes | None] = {name: orjson.dumps(kept) + b"\n" + body}
        while len(self._index) > 1 and (self._bytes > MAX_BYTES or len(self._index) > MAX_ANSWERS):
            gone, (_, size) = self._index.popitem(last=False)
            self._bytes -= size
            changes[gone] = None
        self._unwritten[name] = KeptAnswer(kept, body)
        task = asyncio.create_task(self._write(name, changes), name="copy of an answer")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, name: str, changes: dict[str, bytes | None]) -> None:
        answer, disk = self._unwritten[name], self._copies.disk

        def work() -> bool:
            disk.put(TABLE, changes)
            return True

        if await self._copies.guard(work) is not True and name in self._index:
            # The next one is written, though its bytes be the same.
            self._index[name] = ("", self._index[name][1])
        if self._unwritten.get(name) is answer:
            del self._unwritten[name]

    async def get(self, name: str) -> KeptAnswer | None:
        if name not in self._index:
            return None
        self._index.move_to_end(name)
        if name in self._unwritten:
            return self._unwritten[name]
        disk = self._copies.disk
        value = await self._copies.guard(lambda: disk.value(TABLE, name))
        if value is None:
            return None
        head, _, body = value.partition(b"\n")
        return KeptAnswer(orjson.loads(head), body)

    def _note(self, name: str, digest: str, size: int) -> None:
        self._bytes += size - self._index.get(name, ("", 0))[1]
        self._index[name] = (digest, size)
        self._index.move_to_end(name)


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
