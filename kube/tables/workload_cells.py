"""The rows of workloads (printers.go of Kubernetes 1.36)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kube.json_type import Json
from kube.tables.cells import NONE, age, containers, human_duration, is_true, labels, parse_time, selector
from kube.tables.core_cells import name_of


def deployment_cells(deployment: Json) -> list[Any]:
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    return [
        name_of(deployment),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(deployment),
        *containers(spec.get("template") or {}),
        selector(spec.get("selector")),
    ]


def daemon_set_cells(daemon_set: Json) -> list[Any]:
    spec, status = daemon_set.get("spec") or {}, daemon_set.get("status") or {}
    template = spec.get("template") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name_of(daemon_set),
        *(status.get(count, 0) for count in counts),
        labels((template.get("spec") or {}).get("nodeSelector")),
        age(daemon_set),
        *containers(template),
        selector(spec.get("selector")) or NONE,
    ]


def replica_set_cells(replica_set: Json) -> list[Any]:
    spec, status = replica_set.get("spec") or {}, replica_set.get("status") or {}
    return [
        name_of(replica_set),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(replica_set),
        *containers(spec.get("template") or {}),
        selector(spec.get("selector")) or NONE,
    ]


def stateful_set_cells(stateful_set: Json) -> list[Any]:
    spec, status = stateful_set.get("spec") or {}, stateful_set.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(stateful_set), ready, age(stateful_set), *containers(spec.get("template") or {})]


def template_cells(obj: Json) -> list[Any]:
    template = obj.get("template") or {}
    return [name_of(obj), *containers(template), labels((template.get("metadata") or {}).get("labels"))]


def job_cells(job: Json) -> list[Any]:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    succeeded, completions = status.get("succeeded", 0), spec.get("completions")
    parallelism = spec.get("parallelism") or 0
    of = f" of {parallelism}" if completions is None and parallelism > 1 else ""
    return [
        name_of(job),
        _job_status(job, status.get("conditions")),
        f"{succeeded}/{1 if completions is None else completions}{of}",
        _job_duration(status),
        age(job),
        *containers(spec.get("template") or {}),
        selector(spec.get("selector")) or NONE,
    ]


def _job_status(job: Json, conditions: Any) -> str:
    for condition in ("Complete", "Failed"):
        if is_true(conditions, condition):
            return condition
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(conditions, condition):
            return condition
    return "Running"


def _job_duration(status: Json) -> str:
    start, end = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    return "" if start is None else human_duration(((end or datetime.now(UTC)) - start).total_seconds())
