"""The facts that controllers read from Nodes, Pods and Services."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controllers.runtime.informer import ObjectSelection, WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.bounds import reached
from kube.json_type import Json
from kube.pod_conditions import IMAGE_READY, NEED_UPGRADE
from kube.requests.node_labels import parse_topology_keys
from kube.requests.node_pools import POOL_LABEL
from kube.requests.request_info import ResourceType
from kube.store.store import Key

CONDITION_FIELDS = ("type", "status", "lastTransitionTime", "reason", "message")
MAX_ADDRESSES = 100
"""Addresses read from a Node. A kubelet writes one or two of its own; reading 30,000 would take half a second."""


@dataclass(frozen=True, slots=True)
class Node:
    """The facts of a Node. A heartbeat leaves them equal, so it causes no reconcile."""

    name: str
    uid: str = ""
    pool: str = ""
    ready: bool = False
    unheard_since: str = ""
    """When the node lifecycle controller lost contact, by the condition Ready; "" while it has contact."""
    autonomy: tuple[str, str, str] = ("", "", "")
    """Status, reason and message of the condition Autonomy."""
    hub: tuple[str, str, str] = ("", "", "")
    """Status, reason and message of the condition HubInstalled."""
    ready_changed: str = ""
    """When the condition Ready last changed its status."""
    address: str = ""
    """The first InternalIP in canonical form, "" without a valid one."""
    addresses: frozenset[str] = frozenset()
    """All IP addresses in canonical form."""
    deleting: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    version: str = field(default="", compare=False)


def read_node(obj: Json) -> Node:
    meta, status = metadata(obj), mapping(obj.get("status"))
    labels = texts(meta.get("labels"))
    conditions = {text(condition.get("type")): condition for condition in objects(status.get("conditions"))}
    ready = conditions.get("Ready", {})
    autonomy, hub = (
        (text(found.get("status")), text(found.get("reason")), text(found.get("message")))
        for found in (conditions.get(name, {}) for name in ("Autonomy", "HubInstalled"))
    )
    addresses = objects(status.get("addresses"))
    if len(addresses) > MAX_ADDRESSES:
        reached("addresses of a Node")
        del addresses[MAX_ADDRESSES:]
    internal = [address for address in addresses if address.get("type") == "InternalIP"]
    return Node(
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        pool=labels.get(POOL_LABEL, ""),
        ready=ready.get("status") == "True",
        unheard_since=text(ready.get("lastTransitionTime")) if ready.get("status") == "Unknown" else "",
        autonomy=autonomy,
        hub=hub,
        ready_changed=text(ready.get("lastTransitionTime")),
        address=parse_address(text(internal[0].get("address"))) if internal else "",
        addresses=frozenset(
            filter(None, (parse_address(text(address.get("address"))) for address in addresses))
        ),
        deleting="deletionTimestamp" in meta,
        labels=labels,
        annotations=texts(meta.get("annotations")),
        taints=tuple(objects(mapping(obj.get("spec")).get("taints"))),
        version=text(meta.get("resourceVersion")),
    )


def parse_address(value: str) -> str:
    """Return an IP address in canonical form; "" for any other text. A kubelet writes the addresses of its own Node.

    The ConfigMap of a pool joins nodes and addresses with commas and slashes. An IP address has neither. A zone, as in
    "fe80::1%zone", may have both and is refused.
    """
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return ""
    if "%" in value or address.is_unspecified or address.is_multicast:
        return ""
    return str(address)


def _trimmed_node(obj: Json) -> Json:
    # A Node object is large because it lists all images; keep only the fields that `read_node` reads.
    meta, status = metadata(obj), mapping(obj.get("status"))
    fields = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
    return {
        "metadata": {name: meta[name] for name in fields if name in meta},
        "spec": {"taints": mapping(obj.get("spec")).get("taints")},
        "status": {
            "addresses": objects(status.get("addresses"))[: MAX_ADDRESSES + 1],
            "conditions": [
                {name: condition.get(name) for name in CONDITION_FIELDS}
                for condition in objects(status.get("conditions"))
                if condition.get("type") in ("Ready", "Autonomy", "HubInstalled")
            ],
        },
    }


NODES = WatchedResource(
    ResourceType("", "v1", "nodes"),
    read_node,
    transform=_trimmed_node,
    indexers={"pool": lambda node: [node.pool] if node.pool else [], "address": lambda node: node.addresses},
)


def pools_of_changed(
    of: Callable[[Node], object],
) -> Callable[[Key, Node | None, Node | None], Iterable[Key]]:
    """Make a MapFunc: the old and the new pool of a node that changes pools, or whose value of `of` changes."""

    def pools(_key: Key, old: Node | None, new: Node | None) -> Iterable[Key]:
        was, now = ((node.pool, of(node)) if node is not None else None for node in (old, new))
        return {("", node.pool) for node in (old, new) if node is not None and node.pool and was != now}

    return pools


RECORDS = {
    "node.kubernetes.io/not-ready": "apps.openyurt.io/original-not-ready-toleration-duration",
    "node.kubernetes.io/unreachable": "apps.openyurt.io/original-unreachable-toleration-duration",
}
"""OpenYurt's pod annotations by taint key: the tolerationSeconds before the node became autonomous."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The ownerReference that is the controller."""

    kind: str
    name: str
    uid: str


def controller_of(meta: Json, kind: str = "") -> Owner | None:
    """Return the ownerReference that is the controller, optionally only of this kind."""
    for owner in objects(meta.get("ownerReferences")):
        if owner.get("controller") is True:
            found = Owner(text(owner.get("kind")), text(owner.get("name")), text(owner.get("uid")))
            return found if kind in ("", found.kind) else None
    return None


REVISION = "controller-revision-hash"
"""The pod label in which the DaemonSet controller writes the ControllerRevision's hash."""


@dataclass(frozen=True, slots=True)
class DaemonPod:
    """The facts of a DaemonSet's pod that matter for updates. A condition is (status, reason, message), or empty."""

    uid: str
    owner: str
    """The name of its DaemonSet."""
    owner_uid: str
    revision: str = ""
    """The hash of its ControllerRevision."""
    deleting: bool = False
    ready_since: str = ""
    """Since when it is Ready, "" while it is not."""
    need_upgrade: tuple[str, str, str] = ("", "", "")
    image_ready: tuple[str, str, str] = ("", "", "")


@dataclass(frozen=True, slots=True)
class Pod:
    """The facts of a pod that is bound to a node. A change of its own status leaves them equal, so it causes no
    reconcile."""

    namespace: str
    name: str
    node: str
    tolerations: tuple[Json, ...] = ()
    records: dict[str, str] = field(default_factory=dict)
    """The pod's annotations of `RECORDS`."""
    ready: bool = field(default=False, compare=False)
    version: str = field(default="", compare=False)
    daemon: DaemonPod | None = field(default=None, compare=False)
    """None unless a DaemonSet owns the pod."""


def read_pod(obj: Json) -> Pod:
    meta, spec = metadata(obj), mapping(obj.get("spec"))
    annotations = texts(meta.get("annotations"))
    conditions = {
        text(condition.get("type")): condition
        for condition in objects(mapping(obj.get("status")).get("conditions"))
    }
    return Pod(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        node=text(spec.get("nodeName")),
        tolerations=tuple(objects(spec.get("tolerations"))),
        records={name: annotations[name] for name in RECORDS.values() if name in annotations},
        ready=conditions.get("Ready", {}).get("status") == "True",
        daemon=_daemon_pod(meta, conditions),
        version=text(meta.get("resourceVersion")),
    )


def _daemon_pod(meta: Json, conditions: dict[str, Json]) -> DaemonPod | None:
    owner = controller_of(meta, "DaemonSet")
    if owner is None:
        return None
    ready = conditions.get("Ready", {})
    need, image = (
        (text(found.get("status")), text(found.get("reason")), text(found.get("message")))
        for found in (conditions.get(name, {}) for name in (NEED_UPGRADE, IMAGE_READY))
    )
    return DaemonPod(
        uid=text(meta.get("uid")),
        owner=owner.name,
        owner_uid=owner.uid,
        revision=texts(meta.get("labels")).get(REVISION, ""),
        deleting="deletionTimestamp" in meta,
        ready_since=text(ready.get("lastTransitionTime")) if ready.get("status") == "True" else "",
        need_upgrade=need,
        image_ready=image,
    )


def _trimmed_pod(obj: Json) -> Json:
    # All pods of the cluster are in memory, so only the fields that `read_pod` reads are.
    meta, spec = metadata(obj), mapping(obj.get("spec"))
    annotations = texts(meta.get("annotations"))
    fields: tuple[str, ...] = ("namespace", "name", "uid", "resourceVersion")
    relevant = {"Ready"}
    of_daemon_set: Json = {}
    if controller_of(meta, "DaemonSet") is not None:
        fields = (*fields, "deletionTimestamp", "ownerReferences")
        relevant |= {NEED_UPGRADE, IMAGE_READY}
        of_daemon_set = {"labels": {REVISION: texts(meta.get("labels")).get(REVISION, "")}}
    return {
        "metadata": {
            **{name: meta[name] for name in fields if name in meta},
            **of_daemon_set,
            "annotations": {name: annotations[name] for name in RECORDS.values() if name in annotations},
        },
        "spec": {name: spec[name] for name in ("nodeName", "tolerations") if name in spec},
        "status": {
            "conditions": [
                {name: condition[name] for name in CONDITION_FIELDS if name in condition}
                for condition in objects(mapping(obj.get("status")).get("conditions"))
                if condition.get("type") in relevant
            ]
        },
    }


PODS = WatchedResource(
    ResourceType("", "v1", "pods"),
    read_pod,
    selection=ObjectSelection(fields="spec.nodeName!="),
    transform=_trimmed_pod,
    indexers={
        "node": lambda pod: [pod.node],
        "daemonset": lambda pod: [pod.daemon.owner_uid] if pod.daemon else [],
    },
)


TOPOLOGY = "openyurt.io/topologyKeys"
"""The Service annotation that limits traffic to a node or a pool (OpenYurt)."""
POOL_TOPOLOGIES = frozenset({"openyurt.io/nodepool", "kubernetes.io/zone"})
"""The annotation's values that mean the node pool; the second is the older name (OpenYurt)."""
TOPOLOGY_KEYS = "topologyKeys"
"""The Service annotation that limits traffic to nodes with the same value of a label (SuperEdge)."""
GRID_SELECTOR = "superedge.io/grid-selector"
"""The label that names the ServiceGrid of a Service (SuperEdge)."""


@dataclass(frozen=True, slots=True)
class Service:
    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    topology: str | None = None
    """The topology annotation, None without one."""
    owner: Owner | None = None
    keys: tuple[str, ...] = ()
    """The label keys of the annotation TOPOLOGY_KEYS (SuperEdge)."""
    grid: str = ""
    """The name of the ServiceGrid in its label; "" without one."""
    deleting: bool = False

    @property
    def in_pool(self) -> bool:
        """Whether traffic stays in the node pool, so that a change of a pool affects the Service's endpoints."""
        return self.topology in POOL_TOPOLOGIES


def read_service(obj: Json) -> Service:
    meta = metadata(obj)
    return Service(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        version=text(meta.get("resourceVersion")),
        topology=texts(meta.get("annotations")).get(TOPOLOGY),
        owner=controller_of(meta),
        keys=parse_topology_keys(texts(meta.get("annotations")).get(TOPOLOGY_KEYS, "null")) or (),
        grid=texts(meta.get("labels")).get(GRID_SELECTOR, ""),
        deleting="deletionTimestamp" in meta,
    )


SERVICES = WatchedResource(
    ResourceType("", "v1", "services"),
    read_service,
    indexers={"owner": lambda service: [service.owner.uid] if service.owner else []},
)
