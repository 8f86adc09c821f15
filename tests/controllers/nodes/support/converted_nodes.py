"""A pool whose labelled nodes get hubs, with a simulated kubelet for each node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cloud.real import RealCloud
from tests.controllers.nodes.support.simulated_node import PODS, SimulatedNode, image_of, now
from tests.controllers.support.scene import NODES, POOLS, Scene, condition
from tests.support.worker import Worker

INTERVAL = 0.05
"""Seconds between two polls of the kubelets."""
EDGE_WORKER = "openyurt.io/is-edge-worker"
PHASE = "edgehub.io/hub-phase"
JOBS = "/apis/batch/v1/namespaces/kube-system/jobs"
JOBS_PODS = "edgehub.io/job=node"
"""The label of the pods of the controller's Jobs."""


class ConvertedPool(Scene):
    """The pool, as an administrator sees it."""

    def __init__(self, cloud: RealCloud, annotations: dict[str, str], **spec: Any) -> None:
        super().__init__(cloud, [])
        self.name_of_pool = self.pool(**spec)
        self.members: list[str] = []
        self.annotate(annotations)

    def label(self, nodes: list[str], value: str | None = "true") -> None:
        for node in nodes:
            self.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": {EDGE_WORKER: value}}})

    def ask_for(self, version: str | None) -> None:
        """Set the desired version of the pool's hubs."""
        self.annotate({"edgehub.io/hub-version": version})

    def try_again(self, node: str) -> None:
        """Let the manager retry a failed node."""
        self.admin.patch(f"{NODES}/{node}", {"metadata": {"annotations": {PHASE: None}}})

    def phases(self) -> dict[str, str]:
        """Return the phase of each node, without times; "" for none."""
        found = {each["metadata"]["name"]: each for each in self.admin.get(NODES)["items"]}
        notes = {node: found[node]["metadata"].get("annotations", {}).get(PHASE, "") for node in self.members}
        return {node: note.partition(" ")[0] for node, note in notes.items()}

    def pool_condition(self) -> tuple[str, str]:
        """Return reason and message of the pool's condition."""
        found = self.admin.get(f"{POOLS}/{self.name_of_pool}")
        try:
            said = condition(found, "HubsInstalled")
        except KeyError:
            return "", ""
        return said["reason"], said["message"]

    def are(self, phase: str) -> Callable[[], bool]:
        return lambda: set(self.phases().values()) == {phase}

    def jobs(self, action: str = "") -> list[str]:
        """Return the nodes of all Jobs of this pool, or of Jobs with this action, with repetitions."""
        pods = [each["spec"]["template"]["spec"] for each in self.admin.get(JOBS)["items"]]
        return sorted(
            pod["nodeName"]
            for pod in pods
            if pod["nodeName"] in self.members and action in ("", pod["containers"][0]["args"][0])
        )

    def annotate(self, annotations: dict[str, str] | dict[str, str | None]) -> None:
        self.admin.patch(f"{POOLS}/{self.name_of_pool}", {"metadata": {"annotations": annotations}})


class ConvertedNodes(Worker, ConvertedPool):
    """The nodes and their running kubelets, as a context manager."""

    def __init__(self, cloud: RealCloud, count: int, **annotations: str) -> None:
        given = {f"edgehub.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        super().__init__(cloud, given, interConnectivity=True)
        self.members = [
            self.node(self.name_of_pool, address=f"10.0.1.{number}") for number in range(1, count + 1)
        ]
        client = cloud.client(cloud.authority.issue_admin())
        self._nodes = {node: SimulatedNode(client, node) for node in self.members}
        self._client = client
        self.fails: set[str] = set()
        """Nodes whose doctor finds an error."""
        self.holds: set[str] = set()
        """Absent nodes, whose Jobs do not start."""
        self.silent: set[str] = set()
        """Nodes whose hub never reports that it is healthy."""
        self.bad: set[str] = set()
        """Versions whose hub fails, so that the previous one is restored."""
        self.missing: set[str] = set()
        """Versions whose image cannot be pulled."""
        self.ran: list[tuple[str, str]] = []
        """The action and the node of each Job."""

    def go_away(self, node: str) -> None:
        self.holds.add(node)
        conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": now()}]
        self.admin.patch(f"{NODES}/{node}/status", {"status": {"conditions": conditions}})

    def come_back(self, node: str) -> None:
        self.set_node(node)
        self.holds.discard(node)

    def install_by_hand(self, node: str) -> None:
        self._nodes[node].say("0.2.0")

    def lead(self, node: str) -> None:
        """Make a node the pool's leader, as the manager does."""
        leaders = [{"nodeName": node, "address": "10.0.1.1"}]
        self.admin.patch(f"{POOLS}/{self.name_of_pool}/status", {"status": {"leaderEndpoints": leaders}})

    def upgraded(self) -> list[str]:
        """Return the nodes of all Jobs that upgraded a hub, in order."""
        return [node for action, node in self.ran if action == "upgrade"]

    def _work(self) -> None:
        while not self._ended.wait(INTERVAL):
            for pod in self._client.get(PODS, labelSelector=JOBS_PODS)["items"]:
                node = pod["spec"]["nodeName"]
                if node in self.members and node not in self.holds and pod["status"]["phase"] == "Pending":
                    if image_of(pod).rpartition(":")[2] in self.missing:
                        self._nodes[node].refuse_image(pod)
                        continue
                    fails, is_silent = node in self.fails, node in self.silent
                    action = self._nodes[node].run(pod, fails=fails, bad=self.bad, is_silent=is_silent)
                    self.ran.append((action, node))
