"""The facts that the manager reads from Deployments, StatefulSets, DaemonSets and HorizontalPodAutoscalers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import orjson

from controllers.bindings.rendering.slots import RECORD
from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from controllers.runtime.write_client import ObjectReference
from kube.json_type import Json
from kube.requests.request_info import ResourceType

WORKLOAD_POOL_LABEL = "apps.openyurt.io/pool-name"
"""The label of a workload with the name of its pool. YurtAppSet and YurtAppDaemon set it on their children, users on
their own workloads."""
OWNER_GROUP = "apps.openyurt.io"
"""The API group of YurtAppSet and YurtAppDaemon, in any version."""
WORKLOAD_TYPES = {
    "Deployment": ResourceType("apps", "v1", "deployments"),
    "StatefulSet": ResourceType("apps", "v1", "statefulsets"),
    "DaemonSet": ResourceType("apps", "v1", "daemonsets"),
}


@dataclass(frozen=True, slots=True)
class WorkloadOwner:
    """The controller among the ownerReferences."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Workload:
    """The facts of a workload. They differ whenever its rendering may differ; a change of the status leaves them
    equal."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    version: str = field(default="", compare=False)
    pool: str = ""
    owner: WorkloadOwner | None = None
    record: str = ""
    digest: bytes = b""
    """A digest of the spec, which is too large to store twice."""
    deleting: bool = False

    @property
    def concerned(self) -> bool:
        """Whether bindings may apply to the workload, or are recorded on it."""
        return bool(self.pool or self.record) and not self.deleting

    @property
    def reference(self) -> ObjectReference:
        api_version = WORKLOAD_TYPES[self.kind].api_version
        return ObjectReference(api_version, self.kind, self.namespace, self.name, self.uid)


def read_workload(obj: Json) -> Workload:
    """Read the facts of an apps/v1 object; the object has its kind."""
    meta = metadata(obj)
    return Workload(
        kind=text(obj.get("kind")),
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        version=text(meta.get("resourceVersion")),
        pool=texts(meta.get("labels")).get(WORKLOAD_POOL_LABEL, ""),
        owner=_owner(meta),
        record=texts(meta.get("annotations")).get(RECORD, ""),
        digest=hashlib.blake2b(orjson.dumps(obj.get("spec")), digest_size=16).digest(),
        deleting="deletionTimestamp" in meta,
    )


def subject_key(namespace: str, kind: str, name: str) -> str:
    """Format a binding's subject as an index value."""
    return "/".join((namespace, kind, name))


def subjects_of(workload: Workload) -> list[str]:
    """Return the index values of a workload: its possible subjects, which are the workload itself or its owner."""
    keys = [subject_key(workload.namespace, workload.kind, workload.name)]
    if workload.owner is not None and workload.owner.group == OWNER_GROUP:
        keys.append(subject_key(workload.namespace, workload.owner.kind, workload.owner.name))
    return keys


def _owner(meta: Json) -> WorkloadOwner | None:
    for owner in objects(meta.get("ownerReferences")):
        if owner.get("controller") is True:
            group = text(owner.get("apiVersion")).rpartition("/")[0]
            return WorkloadOwner(group, text(owner.get("kind")), text(owner.get("name")))
    return None


def _watched(kind: str) -> WatchedResource[Workload]:
    """Describe the watch of all workloads, because the controller restores one that loses its pool label.

    Workloads without label and record are trimmed to their names.
    """

    def transform(obj: Json) -> Json:
        meta = metadata(obj)
        labels, annotations = texts(meta.get("labels")), texts(meta.get("annotations"))
        essence: Json = {
            "kind": kind,
            "metadata": {
                key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion") if key in meta
            },
        }
        if WORKLOAD_POOL_LABEL in labels or RECORD in annotations:
            meta.pop("managedFields", None)
            essence = {
                "apiVersion": WORKLOAD_TYPES[kind].api_version,
                "kind": kind,
                "metadata": meta,
                "spec": obj.get("spec"),
            }
        return essence

    return WatchedResource(
        WORKLOAD_TYPES[kind], read_workload, transform=transform, indexers={"subject": subjects_of}
    )


WORKLOADS = {kind: _watched(kind) for kind in WORKLOAD_TYPES}


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """The workload whose replicas a HorizontalPodAutoscaler controls."""

    namespace: str
    kind: str
    name: str


def read_autoscaler(obj: Json) -> Autoscaler:
    target = mapping(mapping(obj.get("spec")).get("scaleTargetRef"))
    ours = text(target.get("apiVersion")).startswith("apps/")
    kind = text(target.get("kind")) if ours else ""
    return Autoscaler(text(metadata(obj).get("namespace")), kind, text(target.get("name")))


def _transform_autoscaler(obj: Json) -> Json:
    meta = metadata(obj)
    return {
        "metadata": {key: meta[key] for key in ("namespace", "name", "resourceVersion") if key in meta},
        "spec": {"scaleTargetRef": mapping(obj.get("spec")).get("scaleTargetRef")},
    }


AUTOSCALERS = WatchedResource(
    ResourceType("autoscaling", "v2", "horizontalpodautoscalers"),
    read_autoscaler,
    transform=_transform_autoscaler,
    indexers={"target": lambda scaler: [subject_key(scaler.namespace, scaler.kind, scaler.name)]},
)
