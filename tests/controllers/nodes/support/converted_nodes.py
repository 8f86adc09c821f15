"""Nodes of a pool with a simulated kubelet: it runs the Jobs of the duty `nodes` to the end that a test wants."""

from __future__ import annotations

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
        _write_lease(self.admin, node, is_well=True)

    def phases(self) -> dict[str, str]:
        """By node, without times; "" for none."""
        found = {each["metadata"]["name"]: each for each in self.admin.get(NODES)["items"]}
        notes = {node: found[node]["metadata"].get("annotations", {}).get(PHASE, "") for node in self.members}
        return {node: note.partition(" ")[0] for node, note in notes.items()}

    def told(self) -> tuple[str, str]:
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
        action = pod["spec"]["containers"][0]["args"][0]
        self.ran.append((action, node))
        path = f"{PODS}/{pod['metadata']['name']}/status"
        if node in self.fails:
            ended = {"terminated": {"exitCode": 1, "message": NO_HUB}}
            status = {
                "name": "edgehub",
                "state": ended,
                "image": "",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
            }
            client.patch(path, {"status": {"phase": "Failed", "containerStatuses": [status]}})
            return
        if node not in self.silent:
            _write_lease(client, node, is_well=action == "install")
        client.patch(path, {"status": {"phase": "Succeeded"}})


def _write_lease(client: RestClient, node: str, *, is_well: bool) -> None:
    """Renew a Lease as a node's hub does, which says how it is, or as kubelet does."""
    notes = {"edgehub.io/hub-status": '{"version":"0.2.0"}' if is_well else None}
    spec: Json = {"renewTime": _now(micro=True), "leaseDurationSeconds": 3600}
    lease = {"metadata": {"name": node, "annotations": notes}, "spec": spec}
    if client.request("POST", LEASES, body=lease).status == 409:
        client.patch(f"{LEASES}/{node}", lease)


def _now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
