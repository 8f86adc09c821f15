"""The facts that controllers read from a NodePool, and the conditions of its status."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from controllers.cluster.kinds import parse_address
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import (
    mapping,
    metadata,
    number,
    objects,
    strings,
    text,
    texts,
    timestamp,
)
from controllers.runtime.write_client import ObjectReference
from kube.json_type import Json
from kube.peers import LeaderHub, is_node_name
from kube.requests.node_pools import NODEPOOL_TYPE, NODEPOOL_VERSIONS
from kube.requests.request_info import ResourceType

RELAY = "edgehub.io/relay"
"""The annotation of a NodePool that names relays."""
MARK = "mark"
"""The leaderElectionStrategy that elects among labelled nodes; every other value means `random`."""
POOL_NAME = "openyurt.io/pool-name"
"""The label of a NodeBucket with the name of its pool."""


@dataclass(frozen=True, slots=True, order=True)
class PoolScopedResource:
    """A resource that a leader hub reads once for its whole pool: an entry of poolScopeMetadata."""

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}/{self.resource}"


SHAREABLE = frozenset({("", "services"), ("", "endpoints"), ("discovery.k8s.io", "endpointslices")})
"""Group and resource of everything that a pool may share.

`hub-rbac.yaml` lets every node read exactly these, so that the editor of a NodePool cannot grant more to nodes.
"""
DEFAULT_POOL_SCOPE = (
    PoolScopedResource("", "v1", "services"),
    PoolScopedResource("discovery.k8s.io", "v1", "endpointslices"),
)
"""The resources that a pool shares by default, as in OpenYurt."""
RESOURCES = {"Service": "services", "Endpoints": "endpoints", "EndpointSlice": "endpointslices"}
"""Resource names by kind: OpenYurt's proposal names shared kinds, its code resources."""


@dataclass(frozen=True, slots=True)
class NodePool:
    """The fields of a NodePool that controllers use. Missing fields have the schema's defaults."""

    name: str
    uid: str = ""
    api_version: str = NODEPOOL_TYPE.api_version
    generation: int = 0
    version: str = ""
    interconnected: bool = False
    election: bool = False
    strategy: str = "random"
    selector: dict[str, str] = field(default_factory=dict)
    replicas: int = 1
    pool_scope: tuple[PoolScopedResource, ...] = DEFAULT_POOL_SCOPE
    own_labels: dict[str, str] = field(default_factory=dict)
    """The labels of the NodePool itself, for selectors. `labels` are for its nodes."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    own_annotations: dict[str, str] = field(default_factory=dict)
    """The annotations of the NodePool itself. `annotations` are for its nodes."""
    relay: str = ""
    """The relays that the pool's hubs read from: URLs, separated by commas."""
    nodes: tuple[str, ...] = ()
    ready: int = -1
    """Ready nodes in the status; -1 before the first count."""
    unready: int = -1
    leaders: tuple[LeaderHub, ...] = ()
    leader_count: int = 0
    conditions: tuple[Json, ...] = ()

    @property
    def elects(self) -> bool:
        """Whether the pool has leaders. OpenYurt's proposal tests interConnectivity, its code enableLeaderElection."""
        return self.interconnected or self.election

    @property
    def reference(self) -> ObjectReference:
        return ObjectReference(self.api_version, "NodePool", "", self.name, self.uid)


def read_pool(obj: Json) -> NodePool:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    return NodePool(
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        api_version=text(obj.get("apiVersion")) or NODEPOOL_TYPE.api_version,
        generation=number(meta.get("generation")),
        version=text(meta.get("resourceVersion")),
        interconnected=spec.get("interConnectivity") is True,
        election=spec.get("enableLeaderElection") is True,
        strategy=text(spec.get("leaderElectionStrategy")) or "random",
        selector=texts(spec.get("leaderNodeLabelSelector")),
        replicas=max(1, number(spec.get("leaderReplicas"), 1)),
        pool_scope=_read_pool_scope(spec.get("poolScopeMetadata")),
        own_labels=texts(meta.get("labels")),
        labels=texts(spec.get("labels")),
        annotations=texts(spec.get("annotations")),
        taints=tuple(objects(spec.get("taints"))),
        own_annotations=texts(meta.get("annotations")),
        relay=texts(meta.get("annotations")).get(RELAY, ""),
        nodes=tuple(strings(status.get("nodes"))),
        ready=number(status.get("readyNodeNum"), -1),
        unready=number(status.get("unreadyNodeNum"), -1),
        leaders=tuple(
            LeaderHub(node, address)
            for endpoint in objects(status.get("leaderEndpoints"))
            if is_node_name(node := text(endpoint.get("nodeName")))
            and (address := parse_address(text(endpoint.get("address"))))
        ),
        leader_count=number(status.get("leaderNum")),
        conditions=tuple(objects(status.get("conditions"))),
    )


def _read_pool_scope(value: object) -> tuple[PoolScopedResource, ...]:
    if not isinstance(value, list):
        return DEFAULT_POOL_SCOPE
    resources = {
        PoolScopedResource(text(item.get("group")), text(item.get("version")), resource)
        for item in objects(value)
        if (resource := text(item.get("resource")) or RESOURCES.get(text(item.get("kind")), ""))
    }
    return tuple(sorted(resource for resource in resources if _shareable(resource)))


def _shareable(entry: PoolScopedResource) -> bool:
    """Parse the resources that the pool shares. The schema refuses others; an object older than the schema may have
    them."""
    version = entry.version.isascii() and entry.version.isalnum()
    return version and (entry.group, entry.resource) in SHAREABLE


NODEPOOLS = WatchedResource(NODEPOOL_TYPE, read_pool, versions=NODEPOOL_VERSIONS)


def with_condition(
    conditions: tuple[Json, ...], kind: str, condition: Json | None, now: datetime
) -> list[Json]:
    """Return the conditions in their order, with one type replaced or, if `condition` is None, removed.

    lastTransitionTime changes only with the status.
    """
    others = [condition for condition in conditions if condition.get("type") != kind]
    if condition is None:
        return others
    old = next((condition for condition in conditions if condition.get("type") == kind), {})
    same = old.get("status") == condition["status"] and "lastTransitionTime" in old
    since = old["lastTransitionTime"] if same else timestamp(now)
    new = {"type": kind, **condition, "lastTransitionTime": since}
    return (
        [new if condition.get("type") == kind else condition for condition in conditions]
        if old
        else [*others, new]
    )


@dataclass(frozen=True, slots=True)
class NodeBucket:
    """A part of a pool's nodes: OpenYurt splits a large pool into objects of a hundred nodes each."""

    pool: str
    nodes: tuple[str, ...] = ()


def read_bucket(obj: Json) -> NodeBucket:
    return NodeBucket(
        pool=texts(metadata(obj).get("labels")).get(POOL_NAME, ""),
        nodes=tuple(name for node in objects(obj.get("nodes")) if (name := text(node.get("name")))),
    )


NODEBUCKETS = WatchedResource(
    ResourceType("apps.openyurt.io", "v1alpha1", "nodebuckets"),
    read_bucket,
    indexers={"pool": lambda bucket: [bucket.pool] if bucket.pool else []},
)
