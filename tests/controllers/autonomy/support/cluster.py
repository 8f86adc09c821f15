"""A cluster whose node lifecycle, eviction and endpoints are kube-controller-manager's, with nodes that can go
silent."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

from kube.json_type import Json
from tests.cloud.real import RealCloud
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import CONFIG_MAPS, NODES, Scene, condition

TOLERATION = 4
"""Seconds for which the API server lets pods tolerate a silent node, instead of 300, to keep the tests short."""
GRACE = 10
"""Seconds until a silent node counts as lost, instead of the default 50."""
RENEWAL = 1.0
"""Seconds between two Lease renewals of a node."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HELD = "edgehub-manager-autonomy"
READY = {"type": "Ready", "status": "True"}

APISERVER = [f"--default-{taint}-toleration-seconds={TOLERATION}" for taint in ("not-ready", "unreachable")]
CONTROLLERS = [
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "endpointslice-controller",
]
MANAGER = [
    f"--node-monitor-grace-period={GRACE}s",
    "--node-monitor-period=500ms",
    "--node-eviction-rate=100",
    # The policy identifies kube-controller-manager by its user names in clusters.
    "--use-service-account-credentials=true",
]


class Cluster(Scene):
    """A cluster whose nodes stay alive unless they are removed. A context manager."""

    def __init__(self, cloud: RealCloud, manager: ManagerProcess) -> None:
        super().__init__(cloud, [manager])
        self._alive: set[str] = set()
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="leases")
        self._numbers = itertools.count(1)
        # kube-controller-manager evicts nothing in a zone that lost more than half of its nodes.
        for _ in range(3):
            self.heard_node()

    def __enter__(self) -> Self:
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewing.join()

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def heard_node(self, **annotations: str) -> str:
        name = self.name("node")
        self.admin.post(LEASES, {"metadata": {"name": name}, "spec": _renewal()})
        self.admin.post(NODES, {"metadata": {"name": name, "annotations": annotations}})
        self.admin.patch(f"{NODES}/{name}/status", {"status": {"conditions": [READY]}})
        self._alive.add(name)
        return name

    def pod(self, node: str, *tolerations: Json) -> str:
        """Create a pod that its kubelet reports Ready, with a Service of its name."""
        name = self.name("pod")
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "any"}],
            "terminationGracePeriodSeconds": 0,
            "tolerations": list(tolerations),
        }
        self.admin.post(self.pods, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
        address = f"10.1.0.{next(self._numbers)}"
        ready = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [READY]}
        self.admin.patch(f"{self.pods}/{name}/status", {"status": ready})
        ports = [{"port": 80}]
        self.admin.post(
            self.services, {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}}
        )
        self.until(lambda: [each["conditions"]["ready"] for each in self.endpoints_of(name)] == [True])
        return name

    def endpoints_of(self, service: str) -> list[Any]:
        return [each for found in self.slices_of(service) for each in found["endpoints"]]

    def slices_of(self, service: str) -> list[Any]:
        found = self.admin.get(self.slices, labelSelector=f"kubernetes.io/service-name={service}")
        return [{**each, "endpoints": each.get("endpoints") or []} for each in found["items"]]

    def tolerated(self, pod: str) -> set[int | None]:
        """Return the seconds for which a pod tolerates its node's absence."""
        found = self.admin.get(f"{self.pods}/{pod}")
        return {each.get("tolerationSeconds") for each in found["spec"]["tolerations"]}

    def is_ready(self, pod: str) -> bool:
        return bool(condition(self.admin.get(f"{self.pods}/{pod}"), "Ready")["status"] == "True")

    def annotate(self, node: str, **annotations: str | None) -> None:
        self.admin.patch(f"{NODES}/{node}", {"metadata": {"annotations": annotations}})

    def is_held(self, node: str) -> bool:
        return node in (self.admin.get(f"{CONFIG_MAPS}/{HELD}").get("data") or {})

    def take_away(self, *nodes: str) -> None:
        """Silence the nodes, and wait until kube-controller-manager has noticed."""
        self._alive -= set(nodes)
        for node in nodes:
            self.sees(NODES, node, is_unreachable)

    def bring_back(self, node: str) -> None:
        self._alive.add(node)
        self.admin.patch(f"{NODES}/{node}/status", {"status": {"conditions": [READY]}})

    def _renew(self) -> None:
        client = self.cloud.client(self.cloud.authority.issue_admin())
        while not self._ended.wait(RENEWAL):
            for node in list(self._alive):
                client.patch(f"{LEASES}/{node}", {"spec": _renewal()})


def _renewal() -> Json:
    return {"renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def is_unreachable(node: Json) -> bool:
    return any(
        each["key"] == "node.kubernetes.io/unreachable" and each["effect"] == "NoExecute"
        for each in node["spec"]["taints"]
    )


def autonomy(status: str, reason: str) -> Callable[[Json], bool]:
    """Return a condition for `Scene.sees` of a node."""

    def holds(node: Json) -> bool:
        found = condition(node, "Autonomy")
        return (found["status"], found["reason"]) == (status, reason)

    return holds
