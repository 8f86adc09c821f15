"""The sources of the filters' inputs. Each reports which inputs a change of its objects affects.

An `InputKey` names an input: ("services", ("default", "web")), or ("nodes", "n3", "zone") for one label of a node.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from addons.views.source import Source
from kube.reflector.list_watch import ListWatch
from kube.requests.node_labels import NODE_LABELS
from kube.requests.node_pools import NODEPOOL_TYPE, NODEPOOL_VERSIONS, POOL_LABEL
from kube.requests.request_info import ResourceType
from kube.store.projection import InputKey
from kube.store.store import Change, Item
from kube.wire.encoding import Encoding

logger = logging.getLogger(__name__)

Changed = Callable[[Collection[InputKey]], None]

CONFIG_MAPS = ResourceType("", "v1", "configmaps")
_NODES = ResourceType("", "v1", "nodes")


class InputKind(StrEnum):
    """Kinds of inputs of filters. All but the last two are objects of a source."""

    SERVICE = "services"
    OWN_NODE = "this node"
    NODE = "nodes"
    NODE_LABELS = "node labels"
    ADDRESS = "node addresses"
    OWN_POOL = "this node's pool"
    POOL = "node pools"
    SLICE = "endpointslices"
    HEALTH = "local health"
    POD_REPORT = "pod reports"


def list_watches_of(kind: InputKind, node: str, pool: str = "") -> list[ListWatch]:
    """Return the list and watch for a kind of input, in each API version that the cloud may serve, preferred ones
    first.

    `node` and `pool` are the names of this node and its pool.
    """
    match kind:
        case InputKind.SERVICE:
            return [ListWatch(ResourceType("", "v1", "services"))]
        case InputKind.OWN_NODE:
            return [ListWatch(_NODES, field_selector=f"metadata.name={node}", metadata_only=True)]
        case InputKind.NODE:
            return [ListWatch(_NODES, metadata_only=True)]
        case InputKind.NODE_LABELS:
            return [ListWatch(NODE_LABELS, encoding=Encoding.JSON)]
        case InputKind.ADDRESS:
            return [ListWatch(_NODES)]
        case InputKind.OWN_POOL | InputKind.POOL:
            types = (NODEPOOL_TYPE._replace(version=version) for version in NODEPOOL_VERSIONS)
            selector = f"metadata.name={pool}" if kind is InputKind.OWN_POOL else ""
            return [ListWatch(type_, field_selector=selector, encoding=Encoding.JSON) for type_ in types]
        case InputKind.SLICE:
            return [ListWatch(ResourceType("discovery.k8s.io", "v1", "endpointslices"))]
        case InputKind.HEALTH | InputKind.POD_REPORT:
            raise ValueError(f"{kind} is not read from the cloud")


def unknown(kind: InputKind) -> InputKey:
    """Return a key that every reader of this kind records. It changes when the source gets or loses its first list."""
    return _UNKNOWN[kind]


_UNKNOWN = {kind: ("state of", kind) for kind in InputKind}
"""These keys, created once, because thousands of objects record them."""


def labels_of(item: Item | None) -> Mapping[str, str]:
    """Return the labels of a node; an empty mapping if it does not exist."""
    return item.labels if item is not None else {}


def pool_of(item: Item | None) -> str:
    """Return the pool that a node's label names; "" for none."""
    return labels_of(item).get(POOL_LABEL, "")


def one_config_map(namespace: str, name: str) -> ListWatch:
    """Return a list and watch of a single ConfigMap, for which permission to read that name suffices."""
    selector = f"metadata.name={name}"
    return ListWatch(CONFIG_MAPS, namespace, field_selector=selector, encoding=Encoding.JSON)


class Input:
    """Watches the source of one kind of input, and calls `changed` with the keys of all inputs that a change affects.

    If the cloud may serve several API versions, it uses the preferred one that exists. A 404 for a version is stored on
    disk, so a hub that starts without a cloud finds the right copy.
    """

    def __init__(
        self,
        kind: InputKind,
        open_source: Callable[[ListWatch], Source],
        list_watches: Sequence[ListWatch],
        changed: Changed,
        keys_of: Callable[[Change], set[InputKey]],
        forget: Callable[[], None],
    ) -> None:
        """`list_watches`: one for each API version, preferred ones first.

        `keys_of` returns the keys that a change affects, and updates the indexes; `forget` clears the indexes.
        """
        self._kind = kind
        self._open = open_source
        self._list_watches = list_watches
        self._changed = changed
        self._keys_of = keys_of
        self._forget = forget
        self._was = (False, False, False, False)
        self._is_new = False
        self._opened: list[tuple[Source, asyncio.Task[None]]] = []
        self.source = self._open_next()
        """The source of the preferred API version that the cloud serves; the most preferred one if it serves none."""
        self.source.store.listen(self)

    def start(self) -> None:
        """Index the source's present objects. No filter has read them yet, so nothing is reported."""
        self._was = self._state
        self._is_new = False
        self._index()

    def close(self) -> None:
        for _, task in self._opened:
            task.cancel()

    def release(self) -> None:
        """Close and drop the sources, once no filter reads this input."""
        self.close()
        self.source.store.forget(self)
        for source, _ in self._opened:
            source.users -= 1

    @property
    def is_missing(self) -> bool:
        """Whether the cloud serves this kind of object in no API version. Every cloud serves Kubernetes' own kinds."""
        self._choose()
        return _is_unserved(self.source) and not self._list_watches[0].type.is_permanent

    @property
    def is_known(self) -> bool:
        return self.is_missing or (self.source.store.complete and self.source.reflector.refusal is None)

    @property
    def is_refused(self) -> bool:
        """Whether the cloud refuses the list for as long as nothing changes there."""
        return self.source.reflector.refusal is not None and (
            self.is_missing or not _is_unserved(self.source)
        )

    @property
    def is_lost(self) -> bool:
        """Whether waiting is useless: the cloud is away, and no copy of its answer is on disk."""
        return not self.is_known and not self.is_refused and self.source.is_lost

    @property
    def _state(self) -> tuple[bool, bool, bool, bool]:
        return self.is_known, self.is_missing, self.is_refused, self.is_lost

    def changed(self, change: Change) -> None:
        touched = self._keys_of(change)
        if touched:
            self._changed(touched)

    def advanced(self) -> None:
        self._check()

    def restarted(self) -> None:
        self._index()
        self._changed({unknown(self._kind)})

    def _open_next(self) -> Source:
        source = self._open(self._list_watches[len(self._opened)])
        source.users += 1
        first = source.reflector.changed.wait()
        task = asyncio.create_task(self._follow(source, first), name=f"input {self._kind}")
        self._opened.append((source, task))
        return source

    def _choose(self) -> None:
        """Switch to the source of the preferred API version that the cloud serves, and close less preferred ones."""
        chosen = next((source for source, _ in self._opened if not _is_unserved(source)), None)
        while chosen is None and len(self._opened) < len(self._list_watches):
            opened = self._open_next()
            chosen = None if _is_unserved(opened) else opened
        if chosen is None:
            chosen = self._opened[0][0]
        elif chosen is not self.source:
            while self._opened[-1][0] is not chosen:
                source, task = self._opened.pop()
                source.users -= 1
                task.cancel()
        if chosen is not self.source:
            self.source.store.forget(self)
            self.source = chosen
            self.source.store.listen(self)
            self._is_new = True
            self._index()

    async def _follow(self, source: Source, next_change: asyncio.Future[None]) -> None:
        while True:
            await next_change
            next_change = source.reflector.changed.wait()
            if source is self.source:
                # The end of a watch may mean that the API versions of the kind have changed.
                for better, _ in itertools.takewhile(lambda opened: opened[0] is not source, self._opened):
                    better.reflector.retry_now()
            self._check()

    def _check(self) -> None:
        now = self._state
        if now == self._was and not self._is_new:
            return
        if self.is_lost:
            logger.warning(
                "no cloud, and no copy of %s: filters run without it until the cloud answers",
                self.source.list_watch.type.group_resource,
            )
        self._was, self._is_new = now, False
        self._index()
        self._changed({unknown(self._kind)})

    def _index(self) -> None:
        """Rebuild the index from the complete store, without a notification for each object."""
        self._forget()
        for item in self.source.store:
            self._keys_of(Change(item.version, item.key, None, item))


def _is_unserved(source: Source) -> bool:
    refusal = source.reflector.refusal
    return refusal is not None and refusal.code == 404
