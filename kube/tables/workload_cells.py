"""The rows of pods, with a status derived from their containers, and of workloads (printers.go, Kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kube.json_type import Json
from kube.tables.cells import NONE, age, containers, human_duration, is_true, labels, parse_time, selector
from kube.tables.core_cells import name_of


class _Restarts:
    """The number of container restarts, and the end of the last terminated container."""

    def __init__(self) -> None:
        self.count = 0
        self._last: datetime | None = None

    def add(self, status: Json) -> None:
        self.count += status.get("restartCount") or 0
        ended = parse_time(((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt"))
        if ended is not None and (self._last is None or ended > self._last):
            self._last = ended

    def __str__(self) -> str:
        if not self.count or self._last is None:
            return str(self.count)
        ago = human_duration((datetime.now(self._last.tzinfo) - self._last).total_seconds())
        return f"{self.count} ({ago} ago)"


class _State(NamedTuple):
    reason: str
    ready: int
    restarts: _Restarts


def pod_cells(pod: Json) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    begun = _init_state(spec, status)
    state, is_initializing = begun
    if not is_initializing or is_true(status.get("conditions"), "Initialized"):
        state = _running_state(spec, status, state)
    reason = state.reason
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    total = len(spec.get("containers") or ()) + len(_sidecars(spec))
    addresses = status.get("podIPs") or ()
    return [
        pod["metadata"].get("name", ""),
        f"{state.ready}/{total}",
        reason,
        str(state.restarts),
        age(pod),
        (addresses[0].get("ip") if addresses else "") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def _sidecars(spec: Json) -> set[str]:
    """The init containers that run alongside the others."""
    listed: Sequence[Json] = spec.get("initContainers") or ()
    return {container.get("name", "") for container in listed if container.get("restartPolicy") == "Always"}


def _first_reason(status: Json) -> str:
    gated = (
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or ()
    )
    return "SchedulingGated" if any(gated) else status.get("reason") or status.get("phase") or ""


def _init_state(spec: Json, status: Json) -> tuple[_State, bool]:
    """The status derived from the init containers, and whether one of them has not finished."""
    sidecars, ready, restarts = _sidecars(spec), 0, _Restarts()
    total = len(spec.get("initContainers") or ())
    for number, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts.add(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            reason = f"Init:{_ended(terminated)}"
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{number}/{total}"
        return _State(reason, ready, restarts), True
    return _State(_first_reason(status), ready, restarts), False


def _running_state(spec: Json, status: Json, begun: _State) -> _State:
    """The status derived from the containers; the first container takes precedence."""
    sidecars, restarts = _sidecars(spec), _Restarts()
    for init_container_status in status.get("initContainerStatuses") or ():
        if init_container_status.get("name") in sidecars:
            restarts.add(init_container_status)
    reason, ready, error = begun.reason, begun.ready, ""
    is_running = False
    for container_status in reversed(status.get("containerStatuses") or ()):
        restarts.add(container_status)
        state = container_status.get("state") or {}
        terminated, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if waiting:
            reason = waiting
        elif terminated is not None:
            reason = _ended(terminated)
            error = reason if terminated.get("exitCode") else error
        elif container_status.get("ready") and state.get("running") is not None:
            is_running = True
            ready += 1
    if reason == "Completed":
        if is_running and is_true(status.get("conditions"), "Ready"):
            reason = "Running"
        elif error or is_running:
            reason = error or "NotReady"
    return _State(reason, ready, restarts)


def _ended(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(spec: Json, status: Json) -> str:
    gates: Sequence[Json] = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    passed = sum(is_true(status.get("conditions"), gate.get("conditionType", "")) for gate in gates)
    return f"{passed}/{len(gates)}"


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
        *("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled"),
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
