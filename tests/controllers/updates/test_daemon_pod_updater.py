"""Updates of a DaemonSet on three nodes, with the real API server and the real DaemonSet and Job controllers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from controllers.cluster.jobs import JOB_NAME
from kube.json_type import Json
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.controllers.conftest import MANIFESTS
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import ACCOUNT, Scene, condition
from tests.hub.support.process import Hub
from tests.support.worker import Worker

INTERVAL = 0.05
"""Seconds between two polls of the kubelets."""
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T12:00:00Z"}

type Outcome = Callable[[Json], Json]
"""The status of a Job's pod that has ended."""


def succeeded(_pod: Json) -> Json:
    return {"phase": "Succeeded"}


def cannot_start(pod: Json) -> Json:
    """Report images that exist but lack the program."""
    ended = {"terminated": {"exitCode": 128, "reason": "StartError"}}
    return {
        "phase": "Failed",
        "containerStatuses": [_status(each, ended, "sha256:1") for each in _containers(pod)],
    }


def cannot_pull(pod: Json) -> Json:
    waiting = {"waiting": {"reason": "ErrImagePull"}}
    return {"phase": "Failed", "containerStatuses": [_status(each, waiting, "") for each in _containers(pod)]}


class EdgeNodes(Worker, Scene):
    """Three nodes with simulated kubelets; a context manager."""

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
        """Return the pods by node."""
        found = self.admin.get(self.pods, labelSelector=f"app={name}")["items"]
        return {each["spec"].get("nodeName", ""): each for each in found}

    def images_of(self, name: str) -> dict[str, str]:
        """Return the images by node."""
        return {node: pod["spec"]["containers"][0]["image"] for node, pod in self.pods_of(name).items()}

    def said(self, name: str, kind: str) -> dict[str, str]:
        """Return the status of a condition of each pod, by node; "" if it has none."""
        return {node: status_of(pod, kind) for node, pod in self.pods_of(name).items()}

    def be_silent(self, node: str) -> None:
        """Make the node NotReady, and stop its kubelet."""
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
        """Report like kubelet, which preserves other conditions. The pod may be deleted already."""
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


pytestmark = [pytest.mark.real]

CONTROLLERS = ["daemonset-controller", "job-controller", "garbage-collector-controller"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    with RealCloud(tmp_path_factory.mktemp("updates"), cloud_programs, controllers=CONTROLLERS) as made:
        made.apply(MANIFESTS)
        yield made


@pytest.fixture(scope="module")
def updating_manager(cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerProcess]:
    account = cloud.kubeconfig("account", token=cloud.token("kube-system", "edgehub-manager"))
    flags = "--controllers=daemonpodupdater,imagepull"
    with ManagerProcess(tmp_path_factory.mktemp("manager"), account, flags) as made:
        made.wait_until_leading()
        yield made
        for code in ("403", "422"):
            assert made.metric("edgehub_manager_writes_total", code=code) == 0


@pytest.fixture
def edge(cloud: RealCloud, updating_manager: ManagerProcess) -> Iterator[EdgeNodes]:
    with EdgeNodes(cloud, updating_manager) as made:
        yield made


class NodeHub:
    """The hub of a node, from which kubelet has read its pods."""

    def __init__(self, edge: EdgeNodes, folder: Path, node: str, server: str) -> None:
        self.node = node
        self.edge = edge
        self.hub = Hub(folder, server, node=node, kubeconfig=edge.cloud.node_kubeconfig(node, server))
        self._http = urllib3.PoolManager(retries=False, timeout=30.0)

    def post(self, pod: str, action: str) -> tuple[int, str]:
        path = f"/openyurt.io/v1/namespaces/{self.edge.namespace}/pods/{pod}/{action}"
        answer = self._http.request("POST", self.hub.admin_url + path)
        return answer.status, answer.data.decode()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "addons.command", "pods", *arguments, "--admin", self.hub.admin_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def read_pods(self) -> None:
        """List the pods like kubelet."""
        with RestClient(self.hub.url, user_agent="kubelet/v1.36.3 (linux/amd64)") as kubelet:
            kubelet.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.node}", resourceVersion="0")


def test_a_pod_with_the_ota_strategy_is_replaced_on_its_nodes_request(
    edge: EdgeNodes, updating_manager: ManagerProcess, tmp_path: Path
) -> None:
    name = edge.daemon_set("agent:1", update_strategy="OTA")
    edge.until(lambda: set(edge.said(name, "PodNeedUpgrade").values()) == {"False"})
    edge.update(name, "agent:2")
    edge.until(lambda: set(edge.said(name, "PodNeedUpgrade").values()) == {"True"})
    edge.until(lambda: updating_manager.metric("edgehub_manager_pods_outdated") == 3)
    first, second, third = edge.nodes
    before = edge.pods_of(name)
    pod, foreign = before[first]["metadata"]["name"], before[second]["metadata"]["name"]
    away = "OTA upgrade is not allowed when node is disconnected to cloud"
    with Link(edge.cloud.host, edge.cloud.port) as link:
        at = NodeHub(edge, tmp_path, first, f"https://127.0.0.1:{link.port}")
        with at.hub:
            at.read_pods()
            edge.until(lambda: pod in at.command().stdout)
            assert at.post(foreign, "upgrade")[0] == 500, "the node may not read a pod of another one"
            link.refuse()
            edge.until(lambda: at.post(pod, "upgrade") == (503, away))
            assert at.post(pod, "imagepull") == (503, away)
            refused = at.command("upgrade", pod)
            assert (refused.returncode, away in refused.stderr) == (1, True)
            assert pod in at.command().stdout, "what waits is known without a cloud, too"
            link.carry()
            edge.until(lambda: at.command("upgrade", pod).returncode == 0)
            edge.until(lambda: edge.images_of(name).get(first) == "agent:2")
            edge.until(
                lambda: edge.said(name, "PodNeedUpgrade") == {first: "False", second: "True", third: "True"}
            )
            edge.until(lambda: at.command().stdout == "no pod of this node waits for an update\n")
            fresh = edge.pods_of(name)[first]["metadata"]["name"]
            code, text = at.post(fresh, "upgrade")
            assert (code, "update status is False" in text) == (403, True)
    after = edge.pods_of(name)
    assert {after[each]["metadata"]["uid"] for each in (second, third)} == {
        before[each]["metadata"]["uid"] for each in (second, third)
    }


def test_a_rolling_update_skips_a_node_that_is_not_ready(edge: EdgeNodes) -> None:
    def deletions_and_readiness(mark: int) -> list[str]:
        """Return the manager's deletions and the pods that became Ready, in order."""
        steps = []
        for event in edge.cloud.audit(mark):
            if event.stage != "ResponseComplete" or not event.uri.startswith(edge.pods) or event.code >= 300:
                continue
            if event.verb == "delete" and event.user == ACCOUNT:
                steps.append("delete")
            elif event.uri.endswith("/status") and event.user != ACCOUNT:
                steps.append("ready")
        return steps

    name = edge.daemon_set("agent:1", update_strategy="AdvancedRollingUpdate", max_unavailable="1")
    first, second, third = edge.nodes
    edge.be_silent(first)
    mark = edge.cloud.audit_mark()
    edge.update(name, "agent:2")
    edge.until(lambda: edge.images_of(name) == {first: "agent:1", second: "agent:2", third: "agent:2"})
    edge.until(lambda: edge.said(name, "Ready") == dict.fromkeys(edge.nodes, "True"))
    assert deletions_and_readiness(mark) == ["delete", "ready", "delete", "ready"]
    edge.come_back(first)
    edge.until(lambda: edge.images_of(name) == dict.fromkeys(edge.nodes, "agent:2"))
    edge.until(lambda: edge.said(name, "PodNeedUpgrade") == dict.fromkeys(edge.nodes, "False"))


def test_an_update_to_a_former_template_uses_its_revision(edge: EdgeNodes) -> None:
    name = edge.daemon_set("agent:1", update_strategy="AdvancedRollingUpdate", max_unavailable="100%")

    def has(image: str) -> None:
        edge.update(name, image)
        edge.until(lambda: edge.images_of(name) == dict.fromkeys(edge.nodes, image))

    has("agent:2")
    has("agent:1")
    edge.until(lambda: edge.said(name, "PodNeedUpgrade") == dict.fromkeys(edge.nodes, "False"))


def test_an_update_waits_for_the_images_if_a_pull_was_requested(edge: EdgeNodes, tmp_path: Path) -> None:
    def jobs_of(image: str) -> list[str]:
        """Return the nodes onto which Jobs pull an image."""
        pods = [each["spec"]["template"]["spec"] for each in edge.admin.get(edge.jobs)["items"]]
        return [each["nodeName"] for each in pods if each["containers"][0]["image"] == image]

    name = edge.daemon_set("agent:1", update_strategy="OTA")
    node = edge.nodes[0]
    at = NodeHub(edge, tmp_path, node, edge.cloud.url)

    def pulled(image: str, outcome: Outcome) -> tuple[str, str, str]:
        """Return the pod, and the result of pulling the images of its new template."""
        edge.outcome = outcome
        edge.update(name, image)
        pod = edge.pods_of(name)[node]["metadata"]["name"]
        edge.until(lambda: at.post(pod, "imagepull")[0] == 200 and jobs_of(image) == [node])
        edge.until(lambda: bool(str(condition(edge.pods_of(name)[node], "PodImageReady").get("reason", ""))))
        found = condition(edge.pods_of(name)[node], "PodImageReady")
        return pod, found["status"], found["reason"]

    with at.hub:
        pod, *found = pulled("agent:2", cannot_pull)
        assert found == ["False", "PullImageFail"]
        code, text = at.post(pod, "upgrade")
        assert (code, "PullImageFail" in text) == (403, True)
        for image, outcome in (("agent:3", cannot_start), ("agent:4", succeeded)):
            pod, *found = pulled(image, outcome)
            assert found == ["True", "PullImageSuccess"]
        assert at.post(pod, "upgrade") == (200, f"Start updating pod {edge.namespace}/{pod}")
        edge.until(lambda: edge.images_of(name).get(node) == "agent:4")


def test_invalid_update_annotations_are_reported(edge: EdgeNodes) -> None:
    name = edge.daemon_set("agent:1", update_strategy="OTA", max_unavailable="many")
    edge.until(lambda: "InvalidUpdateStrategy" in edge.events(name, edge.namespace))
    assert set(edge.said(name, "PodNeedUpgrade").values()) == {""}


def test_pods_without_the_annotation_get_no_condition(edge: EdgeNodes) -> None:
    name = edge.daemon_set("agent:1", update_strategy="OTA")
    edge.update(name, "agent:2")
    edge.until(lambda: set(edge.said(name, "PodNeedUpgrade").values()) == {"True"})
    annotations = {"apps.openyurt.io/update-strategy": None}
    edge.admin.patch(f"{edge.daemon_sets}/{name}", {"metadata": {"annotations": annotations}})
    edge.until(lambda: set(edge.said(name, "PodNeedUpgrade").values()) == {"False"})
