"""Nodes of a pool with a simulated kubelet: it runs the Jobs of the duty `nodes` to the end that a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.controllers.support.scene import NODES, POOLS, Scene, condition
from tests.support.worker import Worker

INTERVAL = 0.05
"""Seconds between two looks of the kubelets."""
EDGE_WORKER = "openyurt.io/is-edge-worker"
PHASE = "edgehub.io/hub-phase"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PODS = "/api/v1/namespaces/kube-system/pods"
JOBS = "/apis/batch/v1/namespaces/kube-system/jobs"
ROLLED_BACK = "edgehub upgrade: the hub has ended; the former program runs again"
NO_HUB = "failed   kubeconfig  /etc/kubernetes/kubelet.conf has an exec plugin, so it is no node's"


class ConvertedNodes(Worker, Scene):
    """A context manager, in which the kubelets run."""

    def __init__(self, cloud: RealCloud, count: int, **annotations: str) -> None:
        super().__init__(cloud, [])
        self.name_of_pool = self.pool(interConnectivity=True)
        given = {f"edgehub.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.admin.patch(f"{POOLS}/{self.name_of_pool}", {"metadata": {"annotations": given}})
        self.members = [
            self.node(self.name_of_pool, address=f"10.0.1.{number}") for number in range(1, count + 1)
        ]
        self.fails: set[str] = set()
        """Nodes whose doctor finds a fault."""
        self.holds: set[str] = set()
        """Nodes that are away: their Jobs do not begin."""
        self.silent: set[str] = set()
        """Nodes whose hub never says that it is well."""
        self.bad: set[str] = set()
        """Versions whose hub fails, so that the former one comes back."""
        self.versions: dict[str, str] = {}
        """The version of each node's hub."""
        self.ran: list[tuple[str, str]] = []
        """The action of each Job, and its node."""

    def label(self, nodes: list[str], value: str | None = "true") -> None:
        for node in nodes:
            self.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": {EDGE_WORKER: value}}})

    def go_away(self, node: str) -> None:
        self.holds.add(node)
        conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": _now()}]
        self.admin.patch(f"{NODES}/{node}/status", {"status": {"conditions": conditions}})

    def come_back(self, node: str) -> None:
        self.set_node(node)
        self.holds.discard(node)

    def install_by_hand(self, node: str) -> None:
        self._say(self.admin, node, "0.2.0")

    def ask_for(self, version: str | None) -> None:
        """Set the version that the pool's hubs are to have."""
        annotations = {"edgehub.io/hub-version": version}
        self.admin.patch(f"{POOLS}/{self.name_of_pool}", {"metadata": {"annotations": annotations}})

    def lead(self, node: str) -> None:
        """Make a node the pool's leader, as the manager's duty does."""
        leaders = [{"nodeName": node, "address": "10.0.1.1"}]
        self.admin.patch(f"{POOLS}/{self.name_of_pool}/status", {"status": {"leaderEndpoints": leaders}})

    def upgraded(self) -> list[str]:
        """The nodes of all Jobs that upgraded a hub, in their order."""
        return [node for action, node in self.ran if action == "upgrade"]

    def phases(self) -> dict[str, str]:
        """By node, without times; "" for none."""
        found = {each["metadata"]["name"]: each for each in self.admin.get(NODES)["items"]}
        notes = {node: found[node]["metadata"].get("annotations", {}).get(PHASE, "") for node in self.members}
        return {node: note.partition(" ")[0] for node, note in notes.items()}

    def pool_condition(self) -> tuple[str, str]:
        """Reason and message of the pool's condition."""
        found = self.admin.get(f"{POOLS}/{self.name_of_pool}")
        try:
            said = condition(found, "HubsInstalled")
        except KeyError:
            return "", ""
        return said["reason"], said["message"]

    def are(self, phase: str) -> Callable[[], bool]:
        return lambda: set(self.phases().values()) == {phase}

    def jobs(self) -> list[str]:
        """The nodes of all Jobs of this pool, each as often as it had one."""
        pods = [each["spec"]["template"]["spec"] for each in self.admin.get(JOBS)["items"]]
        return sorted(pod["nodeName"] for pod in pods if pod["nodeName"] in self.members)

    def _work(self) -> None:
        client = self.cloud.client(self.cloud.authority.issue_admin())
        while not self._ended.wait(INTERVAL):
            for pod in client.get(PODS, labelSelector="edgehub.io/job=node")["items"]:
                node = pod["spec"]["nodeName"]
                if node in self.members and node not in self.holds and pod["status"]["phase"] == "Pending":
                    self._run(client, pod, node)

    def _run(self, client: RestClient, pod: Json, node: str) -> None:
        arguments = pod["spec"]["containers"][0]["args"]
        action = arguments[0]
        version = (
            "" if action == "uninstall" else arguments[arguments.index("--static-pod") + 1].split(":")[1]
        )
        path = f"{PODS}/{pod['metadata']['name']}/status"
        if node in self.fails:
            client.patch(path, _failed(NO_HUB))
        elif version in self.bad:
            self._say(client, node, self.versions[node], rollback=f"edgehub:{version}: the hub has ended")
            client.patch(path, _failed(ROLLED_BACK))
        else:
            if node not in self.silent:
                self._say(client, node, version)
            client.patch(path, {"status": {"phase": "Succeeded"}})
        self.ran.append((action, node))

    def _say(self, client: RestClient, node: str, version: str, rollback: str = "") -> None:
        """Renew a Lease as a node's hub does, which says how it is, or as kubelet does where there is no hub."""
        self.versions[node] = version
        status = json.dumps({"version": version, **({"rollback": rollback} if rollback else {})})
        notes = {"edgehub.io/hub-status": status if version else None}
        spec: Json = {"renewTime": _now(micro=True), "leaseDurationSeconds": 3600}
        lease = {"metadata": {"name": node, "annotations": notes}, "spec": spec}
        if client.request("POST", LEASES, body=lease).status == 409:
            client.patch(f"{LEASES}/{node}", lease)


def _failed(message: str) -> Json:
    """The status of a pod whose program has failed with this termination message."""
    status = {
        "name": "edgehub",
        "state": {"terminated": {"exitCode": 1, "message": message}},
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
    }
    return {"status": {"phase": "Failed", "containerStatuses": [status]}}


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
