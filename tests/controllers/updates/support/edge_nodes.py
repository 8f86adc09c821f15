"""DaemonSets on three nodes, whose scheduler and kubelets are one thread: pods are bound, and Ready, Jobs are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controllers.cluster.jobs import JOB_NAME
from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import Scene, condition
from tests.support.worker import Worker

INTERVAL = 0.05
"""Seconds between two looks of the kubelets."""
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T12:00:00Z"}

type Outcome = Callable[[Json], Json]
"""The status of a Job's pod that has ended."""


def succeeded(_pod: Json) -> Json:
    return {"phase": "Succeeded"}


def cannot_start(pod: Json) -> Json:
    """The images are there, and none of them has the program."""
    ended = {"terminated": {"exitCode": 128, "reason": "StartError"}}
    return {
        "phase": "Failed",
        "containerStatuses": [_status(each, ended, "sha256:1") for each in _containers(pod)],
    }


def cannot_pull(pod: Json) -> Json:
    waiting = {"waiting": {"reason": "ErrImagePull"}}
    return {"phase": "Failed", "containerStatuses": [_status(each, waiting, "") for each in _containers(pod)]}


class EdgeNodes(Worker, Scene):
    """Three nodes; a context manager."""

    def __init__(self, cloud: RealCloud, manager: ManagerProcess) -> None:
        super().__init__(cloud, [manager])
        self.nodes = [self.node(address=f"10.0.0.{number}") for number in (1, 2, 3)]
        self.outcome: Outcome = succeeded
        self._silent: set[str] = set()

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def daemon_sets(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    def daemon_set(self, image: str, **annotations: str) -> str:
        """Create a DaemonSet; return when its pods on all nodes are Ready."""
        name = self.name("agent")
        labels = {"app": name}
        pod = {
            "containers": [{"name": "main", "image": image}],
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"scene": self.namespace},
        }
        for node in self.nodes:
            self.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"scene": self.namespace}}})
        spec = {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        given = {f"apps.openyurt.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.admin.post(self.daemon_sets, {"metadata": {"name": name, "annotations": given}, "spec": spec})
        self.until(lambda: len([each for each in self.pods_of(name).values() if is_ready(each)]) == 3)
        return name

    def update(self, name: str, image: str) -> None:
        containers = [{"name": "main", "image": image}]
        self.admin.patch(
            f"{self.daemon_sets}/{name}", {"spec": {"template": {"spec": {"containers": containers}}}}
        )

    def pods_of(self, name: str) -> dict[str, Json]:
        """By node."""
        found = self.admin.get(self.pods, labelSelector=f"app={name}")["items"]
        return {each["spec"].get("nodeName", ""): each for each in found}

    def images_of(self, name: str) -> dict[str, str]:
        """By node."""
        return {node: pod["spec"]["containers"][0]["image"] for node, pod in self.pods_of(name).items()}

    def said(self, name: str, kind: str) -> dict[str, str]:
        """The status of a condition of each pod, by node; "" where it has none."""
        return {node: status_of(pod, kind) for node, pod in self.pods_of(name).items()}

    def be_silent(self, node: str) -> None:
        """The node is NotReady, and its kubelet does nothing."""
        self._silent.add(node)
        self.set_node(node, ready=False)

    def come_back(self, node: str) -> None:
        self._silent.discard(node)
        self.set_node(node)

    def _work(self) -> None:
        client = self.cloud.client(self.cloud.authority.issue_admin())
        while not self._ended.wait(INTERVAL):
            for pod in client.get(self.pods)["items"]:
                self._look_at(client, pod)

    def _look_at(self, client: RestClient, pod: Json) -> None:
        path, spec = f"{self.pods}/{pod['metadata']['name']}", pod["spec"]
        node = spec.get("nodeName", "")
        if not node:
            target = {"apiVersion": "v1", "kind": "Node", "name": _wanted_node(spec)}
            client.request("POST", f"{path}/binding", body={"metadata": pod["metadata"], "target": target})
        elif node not in self._silent and "deletionTimestamp" not in pod["metadata"]:
            is_jobs = JOB_NAME in pod["metadata"].get("labels", {})
            if is_jobs and pod["status"].get("phase") == "Pending":
                self._report(client, path, self.outcome(pod))
            elif not is_jobs and not is_ready(pod):
                self._report(client, path, {"phase": "Running", "conditions": [READY]})

    def _report(self, client: RestClient, path: str, status: Json) -> None:
        """Report like kubelet, whose conditions leave those of others alone. The pod may be gone."""
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        client.request("PATCH", f"{path}/status", body={"status": status}, headers=headers)


def is_ready(pod: Json) -> bool:
    return status_of(pod, "Ready") == "True"


def status_of(pod: Json, kind: str) -> str:
    try:
        return str(condition(pod, kind)["status"])
    except KeyError:
        return ""


def _wanted_node(spec: Json) -> str:
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    fields: list[Any] = affinity["nodeSelectorTerms"][0]["matchFields"]
    return str(fields[0]["values"][0])


def _containers(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"]]


def _status(name: str, state: Json, image: str) -> Json:
    return {"name": name, "state": state, "imageID": image, "image": "", "ready": False, "restartCount": 0}
