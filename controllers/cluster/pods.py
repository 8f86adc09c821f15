"""The facts that controllers read from a Pod."""

from __future__ import annotations

from dataclasses import dataclass, field

from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType

RECORDS = {
    "node.kubernetes.io/not-ready": "apps.openyurt.io/original-not-ready-toleration-duration",
    "node.kubernetes.io/unreachable": "apps.openyurt.io/original-unreachable-toleration-duration",
}
"""OpenYurt's annotations of a pod, by the taint: the seconds that it tolerated the taint before its node's autonomy."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that is bound to a node. Its own status leaves the facts equal, so it causes no reconcile."""

    namespace: str
    name: str
    node: str
    tolerations: tuple[Json, ...] = ()
    records: dict[str, str] = field(default_factory=dict)
    """Its annotations of `RECORDS`."""
    ready: bool = field(default=False, compare=False)
    version: str = field(default="", compare=False)


def read_pod(obj: Json) -> Pod:
    meta, spec = metadata(obj), mapping(obj.get("spec"))
    annotations = texts(meta.get("annotations"))
    return Pod(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        node=text(spec.get("nodeName")),
        tolerations=tuple(objects(spec.get("tolerations"))),
        records={name: annotations[name] for name in RECORDS.values() if name in annotations},
        ready=any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in objects(mapping(obj.get("status")).get("conditions"))
        ),
        version=text(meta.get("resourceVersion")),
    )


def _transform(obj: Json) -> Json:
    # All pods of the cluster are kept: no more of each than `read_pod` reads.
    meta, spec = metadata(obj), mapping(obj.get("spec"))
    annotations = texts(meta.get("annotations"))
    return {
        "metadata": {
            **{name: meta[name] for name in ("namespace", "name", "uid", "resourceVersion") if name in meta},
            "annotations": {name: annotations[name] for name in RECORDS.values() if name in annotations},
        },
        "spec": {name: spec[name] for name in ("nodeName", "tolerations") if name in spec},
        "status": {
            "conditions": [
                {"type": "Ready", "status": condition.get("status")}
                for condition in objects(mapping(obj.get("status")).get("conditions"))
                if condition.get("type") == "Ready"
            ]
        },
    }


PODS = WatchedResource(
    ResourceType("", "v1", "pods"),
    read_pod,
    field_selector="spec.nodeName!=",
    transform=_transform,
    indexers={"node": lambda pod: [pod.node]},
)
