"""Writes the labels of all nodes by which Services keep their traffic near, so that hubs need not read the Nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controllers.cluster.nodes import NODES, Node
from controllers.cluster.services import SERVICES, Service
from controllers.runtime.controller import Context, Controller, own_key
from controllers.runtime.informer import WatchedResource, without_managed_fields
from kube.bounds import reached
from kube.json_type import Json
from kube.requests.node_labels import ANY_ENDPOINT, BUCKETS, NODE_LABELS, bucket_of, written_labels
from kube.requests.node_pools import POOL_LABEL
from kube.store.store import Key

ALL = tuple(("", f"{number:02}") for number in range(BUCKETS))
"""The keys of all objects. Hubs use them when all are there."""
KEYS = frozenset({POOL_LABEL, "topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
"""Written whatever Services ask for; the host's name, too."""
MAX_KEYS = 64
"""Keys that all Services of the cluster ask for. With more the manager writes nothing, and hubs read the Nodes."""

LABELS = WatchedResource(NODE_LABELS, without_managed_fields)


def labels_of_nodes(name: str, nodes: Iterable[Node], keys: Iterable[str]) -> Json:
    """The object of this name: which of its nodes have which labels, those with the same labels together."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    wanted = sorted({*KEYS, *keys} - {ANY_ENDPOINT})
    for node in nodes:
        labels = written_labels(node.name, node.labels, wanted)
        groups.setdefault(tuple(sorted(labels.items())), []).append(node.name)
    return {
        "apiVersion": NODE_LABELS.api_version,
        "kind": "NodeLabels",
        "metadata": {"name": name},
        "groups": [
            {"labels": dict(labels), "nodes": sorted(names)} for labels, names in sorted(groups.items())
        ],
    }


def differs(live: Json | None, intended: Json) -> bool:
    """Whether an object has to be written."""
    return live is None or live.get("groups", []) != intended["groups"]


class NodeLabelsController(Controller):
    """Key: an object of NodeLabels, which has the nodes of one bucket."""

    name = "nodelabels"
    debounce = 0.2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._keys: Counter[str] = Counter()
        """How many Services ask for each label key."""
        self._nodes = self.watch(NODES, _bucket_of_relabelled)
        self._services = self.watch(SERVICES, self._when_keys_change)
        self._written = self.watch(LABELS, own_key, optional=True)
        for key in ALL:
            self.queue.add(key)

    async def reconcile(self, key: Key) -> None:
        if self._written.missing or key not in ALL:
            return
        live = self._written.get(key)
        if len(self._keys) > MAX_KEYS:
            reached("topology keys")
            if live is not None:
                await self._context.api.delete(NODE_LABELS, "", key[1], live["metadata"]["uid"])
            return
        nodes = (node for _, node in self._nodes.items() if bucket_of(node.name) == key[1])
        intended = labels_of_nodes(key[1], nodes, self._keys)
        if differs(live, intended):
            await self.apply(self._written, intended)

    def _when_keys_change(self, _key: Key, old: Service | None, new: Service | None) -> Iterable[Key]:
        before = self._keys.keys() | ()
        if new is not None:
            self._keys.update(new.keys)
        if old is not None:
            self._keys.subtract(old.keys)
        for key in [key for key, count in self._keys.items() if count <= 0]:
            del self._keys[key]
        return ALL if self._keys.keys() != before else ()


def _bucket_of_relabelled(key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
    was, now = (node.labels if node is not None else None for node in (old, new))
    return [("", bucket_of(key[1]))] if was != now else []
