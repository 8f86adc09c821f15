"""The facts that controllers read from a Service."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.node_labels import parse_topology_keys
from kube.requests.request_info import ResourceType

TOPOLOGY = "openyurt.io/topologyKeys"
"""The annotation that limits traffic of a Service to a node or a pool (OpenYurt)."""
POOL_TOPOLOGIES = frozenset({"openyurt.io/nodepool", "kubernetes.io/zone"})
"""The annotation's values that mean the node pool; the second is the older one (OpenYurt)."""
KEYS = "topologyKeys"
"""The annotation that limits it to nodes with the same value of a label (SuperEdge)."""
GRID_SELECTOR = "superedge.io/grid-selector"
"""The label that names the ServiceGrid of a Service (SuperEdge)."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller among the ownerReferences."""

    kind: str
    name: str
    uid: str


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
    """The label keys by which nodes that share a value are near (SuperEdge)."""
    grid: str = ""
    """The ServiceGrid that its label names."""
    deleting: bool = False

    @property
    def in_pool(self) -> bool:
        """Whether traffic stays in the node pool, so that a change of a pool concerns the Service's endpoints."""
        return self.topology in POOL_TOPOLOGIES


def read_service(obj: Json) -> Service:
    meta = metadata(obj)
    owners = [owner for owner in objects(meta.get("ownerReferences")) if owner.get("controller") is True]
    return Service(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        version=text(meta.get("resourceVersion")),
        topology=texts(meta.get("annotations")).get(TOPOLOGY),
        owner=Owner(text(owners[0].get("kind")), text(owners[0].get("name")), text(owners[0].get("uid")))
        if owners
        else None,
        keys=parse_topology_keys(texts(meta.get("annotations")).get(KEYS, "null")) or (),
        grid=texts(meta.get("labels")).get(GRID_SELECTOR, ""),
        deleting="deletionTimestamp" in meta,
    )


SERVICES = WatchedResource(
    ResourceType("", "v1", "services"),
    read_service,
    indexers={"owner": lambda service: [service.owner.uid] if service.owner else []},
)
