"""The Job that installs, upgrades or removes a node's hub: the hub's image, run on the host's root with its systemd.

The hub then runs as a static pod of the same image, so a node needs no Python.
"""

from __future__ import annotations

from controllers.cluster.jobs import job_name, new_job
from controllers.nodes.conversion import Direction, Phase
from controllers.runtime.unstructured import mapping, objects, text
from kube.json_type import Json

DUTY = "node"
PREFIX = "edgehub-node-"
DEADLINE = 24 * 60 * 60
"""Seconds that a Job's pod may take on the node, with the pull of its image. kubelet counts them: a deadline of the Job
itself would also pass while the node is away, and the node would fail."""
TTL = 24 * 60 * 60
"""Seconds for which a finished Job is kept, so that people can see why it failed."""
END_JOB: Json = {"spec": {"activeDeadlineSeconds": 1}}
"""The patch that ends a Job early."""
STARTS = ("", "ContainerCreating", "PodInitializing")
"""Waiting reasons of a container that is about to start: pulling its image may take long."""
LONGEST_MESSAGE = 1000
"""Characters of a Job's last output in a condition."""
PROGRAM = "/opt/edgehub-{version}/bin/edgehub"
"""The folder of a version's wheel, on a node whose hub is a systemd unit."""
SYSTEMCTL = "/tmp/systemctl"  # noqa: S108 - the pod's own
LEDGER = "/host/var/lib/edgehub-install/ledger.json"
"""The ledger of an installation; it has `"settled": true` when the installation is complete."""
SCRIPT = f"""\
if test "$1" = install && grep -qs '"settled": true' {LEDGER}; then
    echo 'a hub is installed here already: it stays as it is'
    exit 0
fi
printf '#!/bin/sh\\nexec nsenter --target 1 --mount -- "${{0##*/}}" "$@"\\n' > {SYSTEMCTL}
chmod 700 {SYSTEMCTL}
ln -sf systemctl "$(dirname {SYSTEMCTL})/journalctl"
exec edgehub "$@"
"""
"""The Job's program. It calls the host's systemctl and journalctl in the namespaces of the host's PID 1.

A hub that a person installed, and that the cloud does not know yet, keeps its method and its flags.
"""


def name_of(node: str, phase: Phase) -> str:
    """Return the name of a round's Job."""
    return job_name(PREFIX, node, f"{int(phase.round.timestamp()):x}")


def arguments(node: str, phase: Phase, image: str) -> list[str]:
    """Return the command line of `edgehub`."""
    below = ["--root", "/host", "--systemctl", SYSTEMCTL]
    if phase.direction is Direction.UNINSTALL:
        return ["uninstall", *below, "--restart-pods"]
    started = ["--static-pod", image, "--timeout", "300"]
    if phase.direction is Direction.INSTALL:
        return ["install", *below, *started, "--node", node]
    return ["upgrade", *below, *started, "--program", PROGRAM.format(version=phase.version)]


def node_job(namespace: str, node: str, phase: Phase, image: str) -> Json:
    """Build the Job. It runs once, as root on the host like any installation, without a service account token."""
    container = {
        "name": "edgehub",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-ec", SCRIPT, "edgehub"],
        "args": arguments(node, phase, image),
        # Puts its last log lines into the pod's status, for the Node's condition.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "host", "mountPath": "/host"}, {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - the pod's own
    }
    pod_spec: Json = {
        "activeDeadlineSeconds": DEADLINE,
        "hostPID": True,
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "containers": [container],
        "volumes": [
            {"name": "host", "hostPath": {"path": "/", "type": "Directory"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ],
    }
    meta: Json = {"namespace": namespace, "name": name_of(node, phase)}
    return new_job(meta, DUTY, node, pod_spec, ttl=TTL)


def termination_message(pods: list[Json]) -> str:
    """Return the end of a failed Job's output, or why kubelet refused its pod; "" if there is neither."""
    for pod in pods:
        for status in objects(mapping(pod.get("status")).get("containerStatuses")):
            ended = mapping(mapping(status.get("state")).get("terminated"))
            if message := text(ended.get("message")).strip():
                return message[-LONGEST_MESSAGE:]
        if message := text(mapping(pod.get("status")).get("message")).strip():
            return message[:LONGEST_MESSAGE]
    return ""


def waiting_reason(pod: Json) -> str:
    """Return why a pod does not start, as kubelet or the scheduler reports; "" if it starts or runs."""
    status = mapping(pod.get("status"))
    waiting = [
        mapping(mapping(each.get("state")).get("waiting"))
        for each in objects(status.get("containerStatuses"))
    ]
    unscheduled = [
        each
        for each in objects(status.get("conditions"))
        if each.get("type") == "PodScheduled" and each.get("status") == "False"
    ]
    for found in (*waiting, *unscheduled):
        if (reason := text(found.get("reason"))) not in STARTS:
            why = text(found.get("message")).strip()
            return f"its Job does not start: {reason}: {why}"[:LONGEST_MESSAGE]
    return ""
