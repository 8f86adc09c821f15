"""What controllers read of a NodePool, and how its status is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from controllers.runtime.events import About
from controllers.runtime.informer import ResourceKind
from controllers.runtime.reading import mapping, metadata, number, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType

NODEPOOL_TYPE = ResourceType("apps.openyurt.io", "v1beta2", "nodepools")
MARK = "mark"
"""The strategy that elects among marked nodes; every other value means `random`."""


@dataclass(frozen=True, slots=True, order=True)
class Shared:
    """A resource that is read once for a whole pool."""

    group: str
    version: str
    resource: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}/{self.resource}"


SHARED_BY_DEFAULT = (Shared("", "v1", "services"), Shared("discovery.k8s.io", "v1", "endpointslices"))
"""Of document 003."""


@dataclass(frozen=True, slots=True, order=True)
class Leader:
    """A node whose hub reads for its pool, and the address at which the others reach it."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class Pool:
    """The fields that matter here, with the schema's defaults where they are missing."""

    name: str
    uid: str = ""
    generation: int = 0
    version: str = ""
    interconnected: bool = False
    election: bool = False
    strategy: str = "random"
    selector: dict[str, str] = field(default_factory=dict)
    replicas: int = 1
    shared: tuple[Shared, ...] = SHARED_BY_DEFAULT
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()
    nodes: tuple[str, ...] = ()
    ready: int = -1
    """-1 in a pool that has never been counted."""
    unready: int = -1
    leaders: tuple[Leader, ...] = ()
    leader_count: int = 0
    conditions: tuple[Json, ...] = ()

    @property
    def elects(self) -> bool:
        """Document 003 elects where nodes are connected; OpenYurt where enableLeaderElection says so."""
        return self.interconnected or self.election

    @property
    def about(self) -> About:
        return About(NODEPOOL_TYPE.api_version, "NodePool", "", self.name, self.uid)

    @property
    def owner(self) -> Json:
        """An ownerReference: what belongs to a pool goes with it."""
        return {
            "apiVersion": NODEPOOL_TYPE.api_version,
            "kind": "NodePool",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def read_pool(obj: Json) -> Pool:
    meta, spec, status = metadata(obj), mapping(obj.get("spec")), mapping(obj.get("status"))
    nodes = status.get("nodes")
    return Pool(
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        generation=number(meta.get("generation")),
        version=text(meta.get("resourceVersion")),
        interconnected=spec.get("interConnectivity") is True,
        election=spec.get("enableLeaderElection") is True,
        strategy=text(spec.get("leaderElectionStrategy")) or "random",
        selector=texts(spec.get("leaderNodeLabelSelector")),
        replicas=max(1, number(spec.get("leaderReplicas"), 1)),
        shared=_read_shared(spec.get("poolScopeMetadata")),
        labels=texts(spec.get("labels")),
        annotations=texts(spec.get("annotations")),
        taints=tuple(objects(spec.get("taints"))),
        nodes=tuple(each for each in nodes if isinstance(each, str)) if isinstance(nodes, list) else (),
        ready=number(status.get("readyNodeNum"), -1),
        unready=number(status.get("unreadyNodeNum"), -1),
        leaders=tuple(
            Leader(text(each.get("nodeName")), text(each.get("address")))
            for each in objects(status.get("leaderEndpoints"))
        ),
        leader_count=number(status.get("leaderNum")),
        conditions=tuple(objects(status.get("conditions"))),
    )


def _read_shared(value: object) -> tuple[Shared, ...]:
    if not isinstance(value, list):
        return SHARED_BY_DEFAULT
    found = {
        Shared(text(each.get("group")), text(each.get("version")), text(each.get("resource")))
        for each in objects(value)
    }
    return tuple(sorted(each for each in found if _shareable(each)))


def _shareable(shared: Shared) -> bool:
    """The schema refuses the rest; an object from before it may have it. Every node may list what is shared."""
    parts = (shared.version, shared.resource)
    clean = all(part and part.replace("-", "").replace(".", "").isalnum() for part in parts)
    return clean and (shared.group, shared.resource) != ("", "secrets") and "*" not in shared.group


NODEPOOLS = ResourceKind(NODEPOOL_TYPE, read_pool)


def with_condition(
    conditions: tuple[Json, ...], kind: str, condition: Json | None, now: datetime
) -> list[Json]:
    """The conditions with one of a type set or, by None, taken out; the others and their order stay.

    lastTransitionTime moves only when the status changes.
    """
    kept = [each for each in conditions if each.get("type") != kind]
    if condition is None:
        return kept
    old = next((each for each in conditions if each.get("type") == kind), {})
    same = old.get("status") == condition["status"] and "lastTransitionTime" in old
    since = old["lastTransitionTime"] if same else timestamp(now)
    new = {"type": kind, **condition, "lastTransitionTime": since}
    return [new if each.get("type") == kind else each for each in conditions] if old else [*kept, new]


def timestamp(moment: datetime) -> str:
    """As metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
