"""One copy of the objects of a kind in the manager, shared by all controllers: facts read from them, and indexes.

Objects are kept without what no controller reads, so that thousands of nodes and slices fit in little memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from controllers.runtime.reading import metadata, text
from kube.http.client import Client
from kube.json_type import Json
from kube.requests.request_info import ResourceType
from kube.requests.resource_versions import parse_version
from kube.store.reflector import ListWatch, Reflector
from kube.store.store import Change, Item, Key, Store
from kube.wire.codec import Codec
from kube.wire.encoding import Encoding

CATCH_UP = 2.0
"""Seconds for which a write is waited for in the watch: it takes milliseconds, or the watch is broken."""

logger = logging.getLogger(__name__)


def without_managed_fields(obj: Json) -> Json:
    """The object as controllers need it: who wrote which field is half of its size, and nobody reads it."""
    metadata(obj).pop("managedFields", None)
    return obj


@dataclass(frozen=True, slots=True, eq=False)
class ResourceKind[F]:
    """What is watched of one resource, and how it is read. `read` makes comparable facts of an object."""

    type: ResourceType
    read: Callable[[Json], F]
    trim: Callable[[Json], Json] = without_managed_fields
    indexes: Mapping[str, Callable[[F], Iterable[str]]] = field(default_factory=dict)
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""

    @property
    def list_watch(self) -> ListWatch:
        return ListWatch(
            self.type, self.namespace, self.label_selector, self.field_selector, encoding=Encoding.JSON
        )


type Handler[F] = Callable[[Key, F | None, F | None, bool], None]
"""Told of a key, its facts before and after, and whether this is the first sight of an object that was there
already."""


class Informer[F]:
    """Facts by key. Handlers are called in the order of versions, on the event loop."""

    def __init__(self, client: Client, kind: ResourceKind[F]) -> None:
        self.kind = kind
        self._store = _TrimmedStore(kind.trim)
        self._store.listen(self)
        self._reflector = Reflector(client, kind.list_watch, self._store)
        self._facts: dict[Key, F] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in kind.indexes}
        self._handlers: list[Handler[F]] = []
        self.synced = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Why the copy is not there or not current, "" if all is well."""
        return str(self._reflector.error or ("" if self.synced.is_set() else "not listed yet"))

    @property
    def refused(self) -> bool:
        """Whether the API server says no to the list itself: an unknown kind, or no right to read it."""
        return self._reflector.refusal is not None

    def __len__(self) -> int:
        return len(self._facts)

    def handle(self, handler: Handler[F]) -> None:
        self._handlers.append(handler)

    def get(self, key: Key) -> F | None:
        return self._facts.get(key)

    def each(self) -> Iterator[tuple[Key, F]]:
        return iter(self._facts.items())

    def find(self, index: str, value: str) -> list[tuple[Key, F]]:
        """The objects of which the index says this value, in the order of keys."""
        return [(key, self._facts[key]) for key in sorted(self._indexes[index].get(value, ()))]

    def object(self, key: Key) -> Json | None:
        """A fresh copy of the object, as far as it is kept."""
        item = self._store.get(key)
        return None if item is None else _parse(item.raw)

    async def answered(self) -> None:
        """Return when the API server has given the list, or refused it."""
        while not (self.synced.is_set() or self.refused):
            await self._reflector.changed.wait()

    def hurry(self) -> None:
        self._reflector.retry_now()

    async def catch_up(self, written: Json) -> None:
        """Return when the copy is as new as the answer to a write, so that the next look does not write it again."""
        version = parse_version(text(metadata(written).get("resourceVersion")))
        try:
            async with asyncio.timeout(CATCH_UP):
                while self._store.version < version:
                    await self._store.next_update()
        except TimeoutError:
            logger.info("%s lags behind", self.kind.type.group_resource)

    async def run(self) -> None:
        """Keep the copy until cancelled."""
        await self._reflector.run()

    def changed(self, change: Change) -> None:
        self._tell(change.key, self._read(change.new), first=False)

    def advanced(self) -> None:
        if not self.synced.is_set() and self._store.complete:
            self._take_all()
            self.synced.set()

    def restarted(self) -> None:
        """The cluster was restored from a backup: all of it may have changed."""
        for key in [key for key in self._facts if self._store.get(key) is None]:
            self._tell(key, None, first=False)
        self._take_all()

    def _take_all(self) -> None:
        for item in self._store:
            self._tell(item.key, self._read(item), first=True)

    def _read(self, item: Item | None) -> F | None:
        if item is None:
            return None
        try:
            return self.kind.read(_parse(item.raw))
        except Exception:
            # One object that cannot be read must not stop the others.
            logger.exception("%s %s cannot be read", self.kind.type.group_resource, "/".join(item.key))
            return None

    def _tell(self, key: Key, new: F | None, first: bool) -> None:
        old = self._facts.pop(key, None)
        if old is not None:
            self._index(key, old, set.discard)
        if new is not None:
            self._facts[key] = new
            self._index(key, new, set.add)
        for handler in self._handlers:
            handler(key, old, new, first)

    def _index(self, key: Key, facts: F, change: Callable[[set[Key], Key], None]) -> None:
        for name, values_of in self.kind.indexes.items():
            index = self._indexes[name]
            for value in values_of(facts):
                keys = index.setdefault(value, set())
                change(keys, key)
                if not keys:
                    del index[value]


class Informers:
    """The informers of a process, one for each kind."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informers: dict[int, Informer[Any]] = {}

    def of[F](self, kind: ResourceKind[F]) -> Informer[F]:
        """The informer of a kind, made when first asked for."""
        if id(kind) not in self._informers:
            self._informers[id(kind)] = Informer(self._client, kind)
        return self._informers[id(kind)]

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(self._informers.values())


class _TrimmedStore(Store):
    """A store that keeps less of each object than came."""

    def __init__(self, trim: Callable[[Json], Json]) -> None:
        super().__init__()
        self._trim = trim

    def items(self, codec: Codec, raws: Iterable[bytes]) -> dict[Key, Item]:
        return super().items(codec, map(self._trimmed, raws))

    def apply(self, event_type: str, raw: bytes) -> None:
        super().apply(event_type, self._trimmed(raw))

    def _trimmed(self, raw: bytes) -> bytes:
        # orjson leaves the bytes in the buffer that it grew for them; the copy takes only what it needs.
        return bytes(memoryview(orjson.dumps(self._trim(_parse(raw)))))


def _parse(raw: bytes) -> Json:
    parsed = orjson.loads(raw)
    if not isinstance(parsed, dict):
        raise ValueError("an object must be a JSON object")
    return parsed
