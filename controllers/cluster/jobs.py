"""The Jobs that the manager creates: names, common fields, label, and outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from controllers.runtime.informer import ObjectSelection, WatchedResource
from controllers.runtime.unstructured import mapping, metadata, objects, text, texts
from kube.json_type import Json
from kube.requests.request_info import ResourceType

JOB = "edgehub.io/job"
"""The label of the manager's Jobs. Its value is the purpose, such as pulling images."""
JOB_NAME = "batch.kubernetes.io/job-name"
"""The label of a Job's pods."""
COMPLETE, FAILED = "Complete", "Failed"
LONGEST_NAME = 63
"""Characters of a Job's name, because its pods have the name as a label."""


@dataclass(frozen=True, slots=True)
class Job:
    namespace: str
    name: str
    uid: str
    duty: str
    outcome: str = ""
    """COMPLETE or FAILED; "" while the Job runs."""
    pod: str = ""
    """The pod to which it belongs, as an ownerReference names it."""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def job_name(prefix: str, about: str, suffix: str) -> str:
    """Name a Job after an object; a digest replaces the end of a long name."""
    available = LONGEST_NAME - len(prefix) - len(suffix) - 1
    if len(about) > available:
        short = hashlib.blake2b(about.encode(), digest_size=4).hexdigest()
        about = f"{about[: available - len(short) - 1]}-{short}"
    return f"{prefix}{about}-{suffix}"


def new_job(meta: Json, duty: str, node: str, pod_spec: Json, *, ttl: int, **limits: int) -> Json:
    """Return a Job for a duty on a node, with one attempt and without a service account token.

    `meta` has at least namespace and name. `ttl` are seconds from the end, `limits` further fields of the Job.
    """
    labels = {JOB: duty}
    on_node = {
        "nodeName": node,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**meta, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            **limits,
            "ttlSecondsAfterFinished": ttl,
            "template": {"metadata": {"labels": labels}, "spec": on_node | pod_spec},
        },
    }


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
    ResourceType("batch", "v1", "jobs"),
    read_job,
    transform=_trimmed_job,
    selection=ObjectSelection(labels=JOB),
)
