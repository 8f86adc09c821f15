"""The facts of the Jobs that the manager makes: their label, whose they are, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controllers.runtime.informer import WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType

JOB = "edgehub.io/job"
"""The label of the manager's Jobs; its value is the duty that made one."""
COMPLETE, FAILED = "Complete", "Failed"


@dataclass(frozen=True, slots=True)
class Job:
    namespace: str
    name: str
    uid: str
    duty: str
    outcome: str = ""
    """COMPLETE or FAILED, "" for one that is under way."""
    pod: str = ""
    """The pod to which it belongs, as an ownerReference names it."""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def read_job(obj: Json) -> Job:
    meta = metadata(obj)
    outcomes = [
        text(condition.get("type"))
        for condition in objects(mapping(obj.get("status")).get("conditions"))
        if condition.get("status") == "True" and condition.get("type") in (COMPLETE, FAILED)
    ]
    pods = [owner for owner in objects(meta.get("ownerReferences")) if owner.get("kind") == "Pod"]
    labels = texts(meta.get("labels"))
    return Job(
        namespace=text(meta.get("namespace")),
        name=text(meta.get("name")),
        uid=text(meta.get("uid")),
        duty=labels.get(JOB, ""),
        outcome=outcomes[0] if outcomes else "",
        pod=text(pods[0].get("name")) if pods else "",
        deleting="deletionTimestamp" in meta,
        labels=labels,
    )


def _trimmed_job(obj: Json) -> Json:
    meta, status = metadata(obj), mapping(obj.get("status"))
    fields = ("namespace", "name", "uid", "resourceVersion", "labels", "ownerReferences", "deletionTimestamp")
    return {
        "metadata": {name: meta[name] for name in fields if name in meta},
        "status": {
            "conditions": [
                {name: condition.get(name) for name in ("type", "status")}
                for condition in objects(status.get("conditions"))
            ]
        },
    }


JOBS = WatchedResource(
    ResourceType("batch", "v1", "jobs"), read_job, transform=_trimmed_job, label_selector=JOB
)
