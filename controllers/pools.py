"""Controllers that count the nodes of a pool, put the pool's attributes on them, and publish the nodes' labels.

An annotation of the node records the attributes that the pool set, in OpenYurt's format. The controller removes only
what is in the record, so attributes that others set stay.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controllers.cluster.kinds import NODES, SERVICES, Node, Service, pools_of_changed
from controllers.cluster.node_pools import NODEPOOLS, NodePool
from controllers.runtime.controller import REFUSED, Context, Controller, own_key
from controllers.runtime.informer import WatchedResource, without_managed_fields
from controllers.runtime.unstructured import objects, parsed_note, text, texts
from controllers.runtime.write_client import ObjectReference
from kube.bounds import reached
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.node_labels import ANY_ENDPOINT, BUCKETS, NODE_LABELS, bucket_of, written_labels
from kube.requests.node_pools import POOL_LABEL
from kube.store.store import Key

PREVIOUS = "nodepool.openyurt.io/previous-attributes"
"""The node annotation that records the labels, annotations and taints from the pool."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Labels, annotations, and taints by key and effect."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: dict[tuple[str, str], str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.taints)


def wanted_attributes(pool: NodePool | None) -> Attributes:
    """Return the attributes that a pool puts on its nodes; none without a pool. The pool label is never among them."""
    if pool is None:
        return Attributes()
    return Attributes(
        labels={key: value for key, value in pool.labels.items() if key != POOL_LABEL},
        annotations={key: value for key, value in pool.annotations.items() if key != PREVIOUS},
        taints=_taints(pool.taints),
    )


def node_patch(node: Node, wanted: Attributes) -> Json:
    """Return the merge patch that gives a node the wanted attributes; {} if it has them.

    The API server answers 409 to an outdated patch. The pool's value replaces another client's. A value that the node
    already has is not recorded, so it stays when the node leaves the pool, as does a recorded value that another client
    has changed since.
    """
    put = parse_previous(node.annotations.get(PREVIOUS, ""))
    live_taints = _taints(node.taints)
    noted = Attributes(
        labels=_ours(wanted.labels, put.labels, node.labels),
        annotations=_ours(wanted.annotations, put.annotations, node.annotations),
        taints=_ours(wanted.taints, put.taints, live_taints),
    )
    labels = _changes(wanted.labels, put.labels, node.labels)
    annotations = _changes(wanted.annotations, put.annotations, node.annotations)
    note = format_previous(noted)
    if note != node.annotations.get(PREVIOUS):
        annotations[PREVIOUS] = note
    taint_changes = _changes(wanted.taints, put.taints, live_taints)
    patch: Json = {"metadata": {}}
    if labels:
        patch["metadata"]["labels"] = labels
    if annotations:
        patch["metadata"]["annotations"] = annotations
    if taint_changes:
        patch["spec"] = {"taints": _patched_taints(node.taints, taint_changes)}
    if patch == {"metadata": {}}:
        return {}
    patch["metadata"]["resourceVersion"] = node.version
    return patch


def parse_previous(note: str) -> Attributes:
    """Parse the record. An unreadable record counts as empty, so that nothing is removed by mistake."""
    parsed = parsed_note(note)
    return Attributes(
        texts(parsed.get("labels")), texts(parsed.get("annotations")), _taints(objects(parsed.get("taints")))
    )


def format_previous(attributes: Attributes) -> str | None:
    """Format the record for the annotation; None if it is empty."""
    if not attributes:
        return None
    taints = [
        {"effect": effect, "key": key, **({"value": value} if value else {})}
        for (key, effect), value in sorted(attributes.taints.items())
    ]
    noted = {"annotations": attributes.annotations, "labels": attributes.labels, "taints": taints}
    return json.dumps(noted, sort_keys=True, separators=(",", ":"))


def _taints(taints: tuple[Json, ...] | list[Json]) -> dict[tuple[str, str], str]:
    return {
        (text(taint.get("key")), text(taint.get("effect"))): text(taint.get("value"))
        for taint in taints
        if taint.get("key")
    }


def _ours[K](wanted: Mapping[K, str], put: Mapping[K, str], live: Mapping[K, str]) -> dict[K, str]:
    return {key: value for key, value in wanted.items() if key in put or live.get(key) != value}


def _changes[K](wanted: Mapping[K, str], put: Mapping[K, str], live: Mapping[K, str]) -> dict[K, str | None]:
    """Return the values to set; None removes a key."""
    away: dict[K, str | None] = {
        key: None for key, value in put.items() if key not in wanted and live.get(key) == value
    }
    return away | {key: value for key, value in wanted.items() if live.get(key) != value}


def _patched_taints(
    live: tuple[Json, ...], changes: Mapping[tuple[str, str], str | None]
) -> list[Json] | None:
    """Return the complete new list, because a merge patch replaces lists; None, which removes the field, if it is
    empty."""
    untouched = [taint for taint in live if (taint.get("key"), taint.get("effect")) not in changes]
    put = [
        {"key": key, "effect": effect, **({"value": value} if value else {})}
        for (key, effect), value in sorted(changes.items())
        if value is not None
    ]
    return untouched + put or None


class NodeAttributesController(Controller):
    """Puts the labels, annotations and taints of pools on their nodes. Key: a node."""

    name = "nodeattributes"
    workers = 4

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._nodes = self.watch(NODES, own_key)
        self._pools = self.watch(NODEPOOLS, self._members, enqueue_initial=False)

    async def reconcile(self, key: Key) -> None:
        node = self._nodes.get(key)
        if node is None or node.deleting:
            return
        pool = self._pools.get(("", node.pool)) if node.pool else None
        if node.pool and pool is None:
            message = f"label {POOL_LABEL} names the node pool {node.pool}, which does not exist"
            await self._context.events.warning(reference(node), "NodePoolNotFound", message)
        patch = node_patch(node, wanted_attributes(pool))
        if not patch:
            return
        try:
            await self.patch(self._nodes, key, patch)
        except StatusError as error:
            if error.code in REFUSED and pool is not None:
                message = f"node {node.name} does not take the pool's attributes: {error}"
                await self._context.events.warning(pool.reference, "AttributesRefused", message)
            raise

    def _members(self, _key: Key, old: NodePool | None, new: NodePool | None) -> Iterable[Key]:
        if old is not None and new is not None and wanted_attributes(old) == wanted_attributes(new):
            return []
        pool = new or old
        return [key for key, _ in self._nodes.by_index("pool", pool.name)] if pool is not None else []


def reference(node: Node) -> ObjectReference:
    # In Events about a node the uid is the node's name: kubelet writes them so, and `kubectl describe node` expects
    # it.
    return ObjectReference("v1", "Node", "", node.name, node.name)


ALL = tuple(("", f"{number:02}") for number in range(BUCKETS))
"""Keys of all NodeLabels objects. Hubs read them only if all exist."""
KEYS = frozenset({POOL_LABEL, "topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
"""Label keys that are always written, besides those that Services name. The host name is written, too."""
MAX_KEYS = 64
"""Label keys that the cluster's Services may name together. With more the manager writes no NodeLabels, and hubs read
the Nodes."""

LABELS = WatchedResource(NODE_LABELS, without_managed_fields)


def labels_of_nodes(name: str, nodes: Iterable[Node], keys: Iterable[str]) -> Json:
    """Return the NodeLabels object with this name: its nodes' labels, grouped by equal labels."""
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
    """Whether an object must be written."""
    return live is None or live.get("groups", []) != intended["groups"]


class NodeLabelsController(Controller):
    """Writes the topology labels of nodes for hubs. Key: a NodeLabels object, which has the nodes of one bucket."""

    name = "nodelabels"
    debounce = 0.2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._keys: Counter[str] = Counter()
        """Services by label key: how many name each."""
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


class NodePoolController(Controller):
    """Maintains the nodes and counts in a NodePool's status. Key: a pool.

    Several changes within a short time cause one write.
    """

    name = "nodepool"
    debounce = 0.1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pools = self.watch(NODEPOOLS, own_key)
        self._nodes = self.watch(NODES, pools_of)

    async def reconcile(self, key: Key) -> None:
        pool = self._pools.get(key)
        if pool is None:
            return
        status = membership_status(pool, (node for _, node in self._nodes.by_index("pool", pool.name)))
        if status:
            # No other controller writes these fields, so a resourceVersion in the patch would only cause conflicts.
            await self.patch(self._pools, key, {"status": status}, "status")


pools_of = pools_of_changed(lambda node: node.ready)


def membership_status(pool: NodePool, nodes: Iterable[Node]) -> Json:
    """Return the status fields to change so that they match the pool's nodes; {} if none differ."""
    ready_by_name = {node.name: node.ready for node in nodes}
    names = sorted(ready_by_name)
    ready = sum(ready_by_name.values())
    changed: Json = {}
    # A new pool has no list. An empty list means that a manager has counted the nodes.
    if pool.nodes != tuple(names) or pool.ready < 0:
        changed["nodes"] = names
    if pool.ready != ready:
        changed["readyNodeNum"] = ready
    if pool.unready != len(names) - ready:
        changed["unreadyNodeNum"] = len(names) - ready
    return changed
