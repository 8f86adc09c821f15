"""The manager's in-memory copy of each kind of object, shared by all controllers, like client-go's shared informers.

An informer lists and watches one resource. It turns each object into facts (a small, comparable value), indexes the
facts, and calls the controllers' handlers when they change. A transform trims each object before it is stored, so that
thousands of nodes and slices fit in little memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from controllers.runtime.leader_election import user_of_leader
from controllers.runtime.unstructured import metadata, objects, text
from kube.concurrency.notifier import Notifier, completes_within
from kube.errors import StatusError
from kube.http.access_review import user_name
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.packed_text import StoredText
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.requests.request_info import ResourceType
from kube.requests.resource_versions import parse_version
from kube.store.store import Change, Item, Key, Store
from kube.wire.codec import Codec
from kube.wire.codec_base import ObjectPeek, Peeks
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json

OBSERVE_TIMEOUT = 2.0
"""Seconds to wait for the manager's own write in the watch, which normally delivers it within milliseconds."""

DISCOVERY_INTERVAL = 10.0
"""Seconds between two checks for a kind that the API server does not serve."""
DISCOVERY_RETRY = 1.0
"""Seconds until the next check after a failed one, or where the API server lists no kind that its discovery has."""
MISSING = 404
"""The status code with which the API server answers for an unknown kind."""

logger = logging.getLogger(__name__)


def without_managed_fields(obj: Json) -> Json:
    """Remove managedFields, the default transform: they make up half of an object, and no controller reads them."""
    metadata(obj).pop("managedFields", None)
    return obj


class ObjectSelection(NamedTuple):
    """The objects of a resource that an informer watches."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


ALL = ObjectSelection()


@dataclass(frozen=True, slots=True, eq=False)
class WatchedResource[F]:
    """The resource that an informer watches, and how to read it.

    `read` turns an object into facts. `transform` removes fields that `read` does not need. `indexers` map facts to the
    values under which `Informer.by_index` finds them. `versions` are the API versions that `read` understands, best
    first; by default only the version of `type`.
    """

    type: ResourceType
    read: Callable[[Json], F]
    transform: Callable[[Json], Json] = without_managed_fields
    indexers: Mapping[str, Callable[[F], Iterable[str]]] = field(default_factory=dict)
    selection: ObjectSelection = ALL
    versions: tuple[str, ...] = ()

    def list_watch(self, served: ResourceType) -> ListWatch:
        return ListWatch(served, *self.selection, encoding=Encoding.JSON)


def one_object[F](
    resource: ResourceType, namespace: str, name: str, read: Callable[[Json], F]
) -> WatchedResource[F]:
    """Select a single object by name, so that RBAC can limit the manager's list and watch to it."""
    return WatchedResource(
        resource, read, selection=ObjectSelection(namespace, fields=f"metadata.name={name}")
    )


type EventHandler[F] = Callable[[Key, F | None, F | None, bool], None]
"""Called with a key, the facts before (None: new) and after (None: deleted), and whether the object comes from the
initial list."""


class Informer[F]:
    """The facts of one watched resource, by key. Handlers run on the event loop, in the order of resourceVersions."""

    def __init__(self, client: Client, resource: WatchedResource[F]) -> None:
        self.resource = resource
        self.type = resource.type
        """The resource in the version that the API server serves."""
        self._client = client
        self._store = _TransformingStore(resource.transform)
        self._store.listen(self)
        self._reflector = Reflector(client, resource.list_watch(self.type), self._store)
        self._facts: dict[Key, F] = {}
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in resource.indexers}
        self._handlers: list[EventHandler[F]] = []
        self._synced = asyncio.Event()
        self._answered = Notifier()
        self._retry = asyncio.Event()
        self._unserved = False
        self._discovery_error = ""

    @property
    def has_synced(self) -> bool:
        """Whether the initial list has arrived."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> None:
        await self._synced.wait()

    @property
    def sync_error(self) -> str:
        """Why the copy is missing or out of date, "" if it is current."""
        reason = self._discovery_error or self._reflector.error
        return str(reason or ("" if self.has_synced else "not listed yet"))

    @property
    def refused(self) -> bool:
        """Whether the API server refuses the list: it does not know the kind, or denies the right to read it."""
        return self._unserved or self._reflector.refusal is not None

    @property
    def missing(self) -> bool:
        """True if the API server does not serve the kind."""
        refusal = self._reflector.refusal
        return self._unserved or (refusal is not None and refusal.code == MISSING)

    def __len__(self) -> int:
        return len(self._facts)

    def add_event_handler(self, handler: EventHandler[F]) -> None:
        self._handlers.append(handler)

    def get(self, key: Key) -> F | None:
        return self._facts.get(key)

    def items(self) -> Iterator[tuple[Key, F]]:
        return iter(self._facts.items())

    def by_index(self, index: str, value: str) -> list[tuple[Key, F]]:
        """Return the objects that an indexer gives this value, sorted by key."""
        return [(key, self._facts[key]) for key in sorted(self._indexes[index].get(value, ()))]

    def object(self, key: Key) -> Json | None:
        """Return a fresh copy of the object, without the fields that the transform removes."""
        item = self._store.get(key)
        return None if item is None else parse_object(item.raw)

    async def wait_for_response(self) -> None:
        """Wait until the API server has answered the initial list, or refused it."""
        while not (self.has_synced or self.refused):
            await self._answered.wait()

    async def wait_until_read_or_missing(self) -> None:
        """Wait until the initial list has arrived, or the API server answers that it does not know the kind."""
        while not (self.has_synced or self.missing):
            await self._answered.wait()

    def retry_now(self) -> None:
        """Retry the list at once, because the cause of a failure may be gone."""
        self._retry.set()
        self._reflector.retry_now()

    async def wait_until_observed(self, written: Json) -> None:
        """Wait until the watch has delivered this write, so that the next reconcile does not repeat it."""
        version = parse_version(text(metadata(written).get("resourceVersion")))
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT):
                while self._store.version < version:
                    await self._store.next_update()
        except TimeoutError:
            logger.info("the watch of %s lags behind", self.resource.type.group_resource)

    async def run(self) -> None:
        """List and watch until cancelled, in a version that the API server serves."""
        while True:
            if self.resource.versions:
                await self._find_version()
            task = asyncio.ensure_future(self._reflector.run())
            try:
                await self._until_unserved(task)
            finally:
                task.cancel()
                await asyncio.wait({task})
            await asyncio.sleep(DISCOVERY_RETRY)

    async def _find_version(self) -> None:
        """Wait until the API server serves a version that `read` understands."""
        while True:
            self._retry.clear()
            try:
                served = await served_type(self._client, self.resource.type, self.resource.versions)
                self._discovery_error = "" if served else "the API server does not know this kind"
                self._unserved, wait = served is None, DISCOVERY_INTERVAL
            except (StatusError, Unreachable, ValueError) as error:
                served, wait = None, DISCOVERY_RETRY
                self._discovery_error = str(error)
            if served is not None:
                break
            self._answered.notify()
            await completes_within(wait, self._retry.wait())
        self.type = served
        # A new reflector even if the version is the same: the previous one remembers that it was refused.
        self._reflector = Reflector(self._client, self.resource.list_watch(served), self._store)

    async def _until_unserved(self, reflecting: asyncio.Future[None]) -> None:
        """Wait until the API server no longer serves this version of a kind that has several."""
        while not (self.missing and self.resource.versions):
            changed = self._reflector.changed.wait()
            await asyncio.wait({reflecting, changed}, return_when=asyncio.FIRST_COMPLETED)
            if reflecting.done():
                reflecting.result()
            self._answered.notify()

    def changed(self, change: Change) -> None:
        """Store callback: update the indexes and call the handlers for a change."""
        self._update(change.key, self._read(change.new), is_in_initial_list=False)

    def advanced(self) -> None:
        """Store callback: note that the resourceVersion moved, first after the initial list."""
        if not self.has_synced and self._store.complete:
            self._update_all()
            self._synced.set()
            self._answered.notify()

    def restarted(self) -> None:
        """Store callback: the cluster was restored from a backup, so every object may have changed."""
        for key in [key for key in self._facts if self._store.get(key) is None]:
            self._update(key, None, is_in_initial_list=False)
        self._update_all()

    def _update_all(self) -> None:
        for item in self._store:
            self._update(item.key, self._read(item), is_in_initial_list=True)

    def _read(self, item: Item | None) -> F | None:
        if item is None:
            return None
        try:
            return self.resource.read(parse_object(item.raw))
        except Exception:
            # An object on which `read` fails must not stop the informer.
            logger.exception("%s %s cannot be read", self.resource.type.group_resource, "/".join(item.key))
            return None

    def _update(self, key: Key, new: F | None, *, is_in_initial_list: bool) -> None:
        old = self._facts.pop(key, None)
        if old is not None:
            self._update_indexes(key, old, set.discard)
        if new is not None:
            self._facts[key] = new
            self._update_indexes(key, new, set.add)
        for handler in self._handlers:
            handler(key, old, new, is_in_initial_list)

    def _update_indexes(self, key: Key, facts: F, change: Callable[[set[Key], Key], None]) -> None:
        for name, values_of in self.resource.indexers.items():
            index = self._indexes[name]
            for value in values_of(facts):
                keys = index.setdefault(value, set())
                change(keys, key)
                if not keys:
                    del index[value]


async def served_type(client: Client, resource: ResourceType, versions: Iterable[str]) -> ResourceType | None:
    """Return the resource in the first of these versions that the API server serves, None if it serves none.

    Clusters that OpenYurt made serve NodePools in several. Raises what `Client.request` raises, except for 404.
    """
    for version in versions:
        try:
            answer = await client.request("GET", f"/apis/{resource.group}/{version}")
        except StatusError as error:
            if error.code != MISSING:
                raise
            continue
        served = objects(parse_object(answer.body).get("resources"))
        if any(text(entry.get("name")) == resource.resource for entry in served):
            return resource._replace(version=version)
    return None


class Informers:
    """The informers of a process, one for each watched resource, like client-go's SharedInformerFactory."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._informers: dict[int, Informer[Any]] = {}

    def informer_for[F](self, resource: WatchedResource[F]) -> Informer[F]:
        """Return the informer of a watched resource; the first call creates it."""
        if id(resource) not in self._informers:
            self._informers[id(resource)] = Informer(self._client, resource)
        return self._informers[id(resource)]

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(self._informers.values())

    async def serves(self, resource: ResourceType) -> bool:
        """Whether the API server serves a resource in this version. Raises what `served_type` raises."""
        return await served_type(self._client, resource, [resource.version]) is not None

    async def user_name(self) -> str:
        """Return the user name by which the API server knows the manager. Raises what
        `kube.http.access_review.user_name` raises."""
        return await user_name(self._client)

    async def user_of_leader(self, namespace: str) -> str:
        """Return the user name with which the leading manager writes. Raises what the function `user_of_leader`
        raises."""
        return await user_of_leader(self._client, namespace)

    async def list_now(self, resource: ResourceType, namespace: str, **selectors: str) -> list[Json]:
        """List objects that no informer holds completely; `selectors` are list parameters such as `labelSelector`.
        Raises what `Client.request` raises."""
        answer = await self._client.request("GET", resource.path(namespace), query=selectors)
        try:
            listed = await answer.decoded(parse_object)
        except ValueError as error:
            raise Unreachable(f"the list cannot be read: {error}") from None
        return objects(listed.get("items"))

    def objects(self, group_resource: str) -> int:
        """Return the number of cached objects of a resource, in all its informers."""
        return sum(
            len(informer) for informer in self if informer.resource.type.group_resource == group_resource
        )


class _TransformingStore(Store):
    """A store that transforms each object before it stores it."""

    def __init__(self, transform: Callable[[Json], Json]) -> None:
        super().__init__()
        self._transform = transform

    def items(self, codec: Codec, raws: Iterable[StoredText], _peeks: Peeks = ()) -> dict[Key, Item]:
        return super().items(codec, map(self._transformed, map(bytes, raws)))

    def apply(self, event_type: str, raw: bytes, _peek: ObjectPeek | None = None) -> None:
        super().apply(event_type, self._transformed(raw))

    def _transformed(self, raw: bytes) -> bytes:
        return write_json(self._transform(parse_object(raw)))
