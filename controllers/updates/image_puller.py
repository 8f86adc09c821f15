"""Pulls the images of a DaemonSet's newest template onto a node, by a Job, before its pod there is updated.

A hub requests it by setting the pod's condition PodImageReady to False, with the revision in the message.
"""

from __future__ import annotations

from collections.abc import Iterable

from controllers.cluster.jobs import COMPLETE, JOB_NAME, JOBS, Job, job_name, new_job
from controllers.cluster.kinds import PODS, DaemonPod, Pod
from controllers.runtime import metrics
from controllers.runtime.controller import Context, Controller
from controllers.runtime.unstructured import mapping, objects, text
from controllers.runtime.write_client import unless_gone
from controllers.updates.daemon_sets import DAEMON_SETS, REVISIONS, DaemonSet, newest
from controllers.updates.rollouts import PULL_FAILED, PULLED, image_ready_patch
from kube.errors import StatusError
from kube.json_type import Json
from kube.pod_conditions import VERSION_PREFIX
from kube.store.store import Key

DUTY = "image-pull"
PREFIX = "image-pre-pull-"
DEADLINE = 24 * 60 * 60
"""Seconds that a pull may take: a link may be up for only some hours a day."""
TTL = 300
"""Seconds for which a finished Job stays, so that people can see it."""
NOBODY_UID = 65534
ALREADY_EXISTS = 409


def image_job(name: str, pod: Pod, uid: str, daemon_set: DaemonSet) -> Json:
    """Build the Job: one container per image, which exits at once, as user `nobody` and without a token.

    An image without the program `true` cannot start, so the Job may fail although its images were pulled: the
    controller checks its pod.
    """
    containers = [
        {
            "name": f"pull-{number}",
            "image": image,
            "command": ["true"],
            "imagePullPolicy": "Always",
            "resources": {
                "requests": {"cpu": "1m", "memory": "4Mi"},
                "limits": {"cpu": "100m", "memory": "16Mi"},
            },
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        for number, (_, image) in enumerate(daemon_set.images)
    ]
    meta: Json = {
        "namespace": pod.namespace,
        "name": name,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid}],
    }
    pod_spec: Json = {
        "imagePullSecrets": [{"name": name} for name in daemon_set.pull_secrets],
        "securityContext": {
            "runAsUser": NOBODY_UID,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
    }
    return new_job(meta, DUTY, pod.node, pod_spec, ttl=TTL, activeDeadlineSeconds=DEADLINE)


def asked_revision(pod: DaemonPod) -> str:
    """Return the hash of the revision whose images a hub has requested; "" if nothing is left to do."""
    needs, _, wanted = pod.need_upgrade
    status, _, message = pod.image_ready
    is_asked = needs == "True" and status == "False" and message == wanted
    return wanted.removeprefix(VERSION_PREFIX) if is_asked and not pod.deleting else ""


class ImagePuller(Controller):
    """Creates the Jobs that pull requested images, and reports the result in the pod's condition. Key: a pod of a
    DaemonSet."""

    name = "imagepull"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pods = self.watch(PODS, _asking)
        self._jobs = self.watch(JOBS, _pod_of)
        self._sets = self.follow(DAEMON_SETS)
        self._revisions = self.follow(REVISIONS)

    async def reconcile(self, key: Key) -> None:
        pod = self._pods.get(key)
        daemon = pod.daemon if pod is not None else None
        if pod is None or daemon is None or not (revision := asked_revision(daemon)):
            return
        name = job_name(PREFIX, pod.name, revision)
        job = self._jobs.get((pod.namespace, name))
        if job is None:
            await self._create(name, pod, daemon, revision)
        elif job.outcome:
            await self._report(job, pod, daemon)

    async def _create(self, name: str, pod: Pod, daemon: DaemonPod, revision: str) -> None:
        daemon_set = self._sets.get((pod.namespace, daemon.owner))
        if daemon_set is None or daemon_set.uid != daemon.owner_uid:
            return
        current = newest(
            daemon_set, (found for _, found in self._revisions.by_index("daemonset", daemon_set.uid))
        )
        if current is None or current.hash != revision:
            return  # the pod is about to be marked anew
        try:
            await self._context.api.create(JOBS.type, image_job(name, pod, daemon.uid, daemon_set))
        except StatusError as error:
            if error.code != ALREADY_EXISTS:
                raise

    async def _report(self, job: Job, pod: Pod, daemon: DaemonPod) -> None:
        is_there = job.outcome == COMPLETE or await self._were_pulled(job)
        reason = PULLED if is_there else PULL_FAILED
        message = daemon.need_upgrade[2] if is_there else f"pull image job {job.name} failed"
        patch = image_ready_patch(daemon, reason=reason, message=message)
        with unless_gone():
            written = await self._context.api.strategic_merge_patch(
                PODS.type, pod.namespace, pod.name, patch, "status"
            )
            await self._pods.wait_until_observed(written)
        metrics.IMAGE_PULLS.labels("pulled" if is_there else "failed").inc()

    async def _were_pulled(self, job: Job) -> bool:
        selector = f"{JOB_NAME}={job.name}"
        pods = await self._context.informers.list_now(PODS.type, job.namespace, labelSelector=selector)
        return any(has_all_images(pod) for pod in pods)


def has_all_images(pod: Json) -> bool:
    """Whether kubelet has found an image for each container of a pod, whether it could start or not."""
    wanted = objects(mapping(pod.get("spec")).get("containers"))
    statuses = objects(mapping(pod.get("status")).get("containerStatuses"))
    found = [status for status in statuses if text(status.get("imageID"))]
    return bool(wanted) and len(found) == len(wanted)


def _asking(key: Key, old: Pod | None, new: Pod | None) -> Iterable[Key]:
    """MapFunc: the key of a pod whose conditions have changed and request images."""
    was, now = (pod.daemon if pod is not None else None for pod in (old, new))
    return (key,) if now is not None and now != was and asked_revision(now) else ()


def _pod_of(_key: Key, old: Job | None, new: Job | None) -> Iterable[Key]:
    """MapFunc: the key of the pod whose Job has ended or was deleted."""
    job = new or old
    is_due = job is not None and job.duty == DUTY and old != new and (new is None or bool(new.outcome))
    return ((job.namespace, job.pod),) if job is not None and is_due else ()
