"""Decides which pods of a DaemonSet are outdated, and which of these are replaced now. Pure functions of facts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controllers.cluster.kinds import DaemonPod, Pod
from controllers.runtime.unstructured import timestamp
from controllers.updates.daemon_sets import DaemonSet, Revision
from kube.json_type import Json
from kube.pod_conditions import IMAGE_READY, NEED_UPGRADE, VERSION_PREFIX

PULLED, PULL_FAILED = "PullImageSuccess", "PullImageFail"
"""Reasons of the condition PodImageReady (OpenYurt)."""
MAX_AT_ONCE = 250
"""Pods that are deleted in one reconcile: a registry could not serve more pulls at once."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A DaemonSet with its newest revision, and the numbers of all revisions by hash."""

    daemon_set: DaemonSet
    newest: Revision
    numbers: Mapping[str, int]

    @property
    def message(self) -> str:
        return VERSION_PREFIX + self.newest.hash

    def is_outdated(self, pod: DaemonPod) -> bool | None:
        """Whether the pod has an older revision; None if its revision is not known yet.

        Revision numbers decide: pods and revisions arrive by different watches, and a pod of a template that is not
        known yet must not count as outdated.
        """
        if not pod.revision or pod.revision == self.newest.hash:
            return not pod.revision
        number = self.numbers.get(pod.revision)
        return None if number is None else number < self.newest.number

    def waits_for_images(self, pod: DaemonPod) -> bool:
        """Whether the newest images were requested for this pod, and are not pulled yet or cannot be."""
        status, _, message = pod.image_ready
        return status not in ("", "True") and self.newest.hash in message


@dataclass(frozen=True, slots=True)
class Replacements:
    """The pods to delete now, and the seconds until the next check if a pod has not been Ready for long enough; 0: no
    check."""

    pods: tuple[Pod, ...]
    again: float = 0.0


def to_replace(
    rollout: Rollout,
    pods: Iterable[Pod],
    ready_nodes: Container[str],
    deleted: Container[str],
    now: datetime,
) -> Replacements:
    """Choose outdated pods on Ready nodes, as many as may be unavailable; unavailable pods first.

    A node that is not Ready is skipped, and does not count. `deleted` are the uids of deleted pods that the watch has
    not shown as terminating yet.
    """
    daemon_set = rollout.daemon_set
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    unavailable = max(0, daemon_set.desired - len(by_node))
    broken: list[Pod] = []
    candidates: list[Pod] = []
    waits: list[float] = []
    for node, there in sorted(by_node.items()):
        if node not in ready_nodes:
            continue
        live = [
            (pod, pod.daemon)
            for pod in there
            if pod.daemon is not None and not pod.daemon.deleting and pod.daemon.uid not in deleted
        ]
        if len(live) != 1:  # one is going, or comes
            unavailable += 1
            continue
        ((pod, daemon),) = live
        wait = _seconds_to_available(daemon, daemon_set.min_ready, now)
        if wait is None or wait > 0:
            unavailable += 1
            waits += [wait] if wait else []
        if rollout.is_outdated(daemon) and not rollout.waits_for_images(daemon):
            (candidates if wait is not None and wait <= 0 else broken).append(pod)
    allowed = max(0, max_unavailable(daemon_set, len(by_node)) - unavailable)
    return Replacements(tuple((broken + candidates[:allowed])[:MAX_AT_ONCE]), min(waits, default=0.0))


def max_unavailable(daemon_set: DaemonSet, nodes: int) -> int:
    """Return how many pods on `nodes` may be unavailable; a percentage is rounded up, as in Kubernetes."""
    number, is_percentage = daemon_set.unavailable
    return -(-number * nodes // 100) if is_percentage else number


def _seconds_to_available(pod: DaemonPod, min_ready: int, now: datetime) -> float | None:
    """Return the seconds until the pod counts as available, 0 or less if it does; None if it is not Ready."""
    if not pod.ready_since:
        return None
    try:
        since = datetime.fromisoformat(pod.ready_since)
    except ValueError:
        return 0.0
    return (since + timedelta(seconds=min_ready) - now).total_seconds() if min_ready else 0.0


def need_upgrade_patch(pod: DaemonPod, rollout: Rollout | None) -> Json:
    """Return the status patch that sets whether the pod needs an upgrade; {} if its condition is right already.

    `rollout` is None for a DaemonSet without an update strategy: its pods need no upgrade.
    """
    status, _, message = pod.need_upgrade
    if rollout is None:
        return condition_patch(pod, NEED_UPGRADE, "False", "", message) if status == "True" else {}
    is_outdated = rollout.is_outdated(pod)
    wanted = "True" if is_outdated else "False"
    if is_outdated is None or (status, message) == (wanted, rollout.message):
        return {}
    return condition_patch(pod, NEED_UPGRADE, wanted, "", rollout.message)


def image_ready_patch(pod: DaemonPod, *, reason: str, message: str) -> Json:
    return condition_patch(pod, IMAGE_READY, "True" if reason == PULLED else "False", reason, message)


def condition_patch(pod: DaemonPod, kind: str, status: str, reason: str, message: str) -> Json:
    """Return a strategic merge patch of one condition that applies only to the pod with this uid."""
    since = {"lastTransitionTime": timestamp(datetime.now(UTC))}
    condition = {"type": kind, "status": status, "reason": reason, "message": message, **since}
    return {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
