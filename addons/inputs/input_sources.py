"""The sources of what filters ask. Each reports which inputs a change of its objects touches.

An `InputKey` names an input: ("services", ("default", "web")), or ("nodes", "n3", "zone") for one label of a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

from addons.filters.inputs import POOL_LABEL
from addons.views.source import Source
from kube.requests.request_info import ResourceType
from kube.store.projection import InputKey
from kube.store.reflector import ListWatch
from kube.store.store import Change, Item
from kube.wire.encoding import Encoding

Changed = Callable[[Collection[InputKey]], None]

_NODES = ResourceType("", "v1", "nodes")


class InputKind(StrEnum):
    """What a filter asks about. All kinds but the last are the objects of a source."""

    SERVICE = "services"
    OWN_NODE = "this node"
    NODE = "nodes"
    ADDRESS = "node addresses"
    POOL = "node pools"
    SLICE = "endpointslices"
    HEALTH = "local health"


def list_watch_of(kind: InputKind, node: str) -> ListWatch:
    """The list and watch of the cloud that a kind of input needs; `node` is this node's name."""
    match kind:
        case InputKind.SERVICE:
            return ListWatch(ResourceType("", "v1", "services"))
        case InputKind.OWN_NODE:
            return ListWatch(_NODES, field_selector=f"metadata.name={node}", metadata_only=True)
        case InputKind.NODE:
            return ListWatch(_NODES, metadata_only=True)
        case InputKind.ADDRESS:
            return ListWatch(_NODES)
        case InputKind.POOL:
            pools = ResourceType("apps.openyurt.io", "v1beta2", "nodepools")
            return ListWatch(pools, encoding=Encoding.JSON)
        case InputKind.SLICE:
            return ListWatch(ResourceType("discovery.k8s.io", "v1", "endpointslices"))
        case InputKind.HEALTH:
            raise ValueError("local health is not asked of the cloud")


def unknown(kind: InputKind) -> InputKey:
    """The key that goes with every input of a kind: it changes when the source gets or loses its first list."""
    return ("state of", kind)


def labels_of(item: Item | None) -> Mapping[str, str]:
    """The labels of a node; none where there is no such node."""
    return item.labels if item is not None else {}


def pool_of(item: Item | None) -> str:
    """The pool that a node's label names, "" for none."""
    return labels_of(item).get(POOL_LABEL, "")


class Input:
    """Follows one source: `changed` gets the keys of all inputs that a change touches."""

    def __init__(
        self,
        kind: InputKind,
        source: Source,
        changed: Changed,
        keys_of: Callable[[Change], set[InputKey]],
        forget: Callable[[], None],
    ) -> None:
        """`keys_of` gives the keys that a change touches and updates the indexes; `forget` empties the indexes."""
        self.source = source
        self._kind = kind
        self._changed = changed
        self._keys_of = keys_of
        self._forget = forget
        self._was = (False, False)
        source.users += 1
        source.store.listen(self)
        self._task = asyncio.create_task(self._follow(), name=f"input {kind}")

    def start(self) -> None:
        """Index what the source has already. No filter has asked yet, so nothing is reported."""
        self._was = (self.is_known, self.is_missing)
        self._index()

    def close(self) -> None:
        self._task.cancel()

    @property
    def is_missing(self) -> bool:
        """The cloud does not know this kind of object."""
        refusal = self.source.reflector.refusal
        return refusal is not None and refusal.code == 404

    @property
    def is_known(self) -> bool:
        return self.is_missing or (self.source.store.complete and self.source.reflector.refusal is None)

    def changed(self, change: Change) -> None:
        touched = self._keys_of(change)
        if touched:
            self._changed(touched)

    def advanced(self) -> None:
        self._check()

    def restarted(self) -> None:
        self._index()
        self._changed({unknown(self._kind)})

    async def _follow(self) -> None:
        while True:
            await self.source.reflector.changed.wait()
            self._check()

    def _check(self) -> None:
        now = (self.is_known, self.is_missing)
        if now == self._was:
            return
        self._was = now
        self._index()
        self._changed({unknown(self._kind)})

    def _index(self) -> None:
        """Index the whole store anew, without a report for each object."""
        self._forget()
        for item in self.source.store:
            self._keys_of(Change(item.version, item.key, None, item))
