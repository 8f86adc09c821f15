"""The pods of a node: their status in the cloud, at the hub by kubectl on the node, and their containers."""

from __future__ import annotations

import json

from kube.json_type import Json
from scripts.node_machine import cloud
from scripts.node_machine.commands import until
from scripts.node_machine.machine import Machine

RETURN = 30.0
"""Seconds after which cloud and node must agree again."""
PLAIN_PORT = "http://127.0.0.1:10261"
KUBECTL = ("kubectl", f"--server={PLAIN_PORT}", "get", "pod", "--output=json")
IS_CONTAINER = 'labels."io.cri-containerd.kind"==container'
"""The filter for containers that are not sandboxes."""


def at_hub(node: Machine, pod: str) -> Json:
    """Return a pod's status at the hub."""
    status: Json = json.loads(node.run(*KUBECTL, pod))["status"]
    return status


def address(node: Machine, pod: str) -> str:
    """Return a pod's address at the hub."""
    return str(at_hub(node, pod).get("podIP", ""))


def waits_for(node: Machine, pod: str) -> str:
    """Return why the container of a pod does not run, according to the hub; "" if it runs."""
    (container,) = at_hub(node, pod).get("containerStatuses", [{}])
    return str(container.get("state", {}).get("waiting", {}).get("reason", ""))


def runs(node: Machine, pod: str) -> bool:
    """Return True if the container of a pod runs, according to the hub."""
    return any("running" in each["state"] for each in at_hub(node, pod).get("containerStatuses", []))


def wait_until_equal(clouds: Machine, node: Machine) -> None:
    """Wait until kubelet has the cloud's pods, and the containers run that the cloud reports as running."""

    def differ() -> str:
        pods = _of_cloud(clouds, node)
        said = {pod["metadata"]["uid"] for pod in pods}
        running = {
            container["containerID"].rpartition("/")[2]
            for pod in pods
            for container in pod["status"].get("containerStatuses", [])
            if "running" in container["state"]
        }
        on_disk, runs = set(node.run("ls", "/var/lib/kubelet/pods").split()), _running(node)
        return (
            ""
            if (said, running) == (on_disk, runs)
            else f"pods {said ^ on_disk}, containers {running ^ runs}"
        )

    try:
        until("cloud and node are of one mind", lambda: not differ(), RETURN)
    except Exception as error:
        raise AssertionError(f"{error}: {differ()}") from error


def _of_cloud(clouds: Machine, node: Machine) -> list[Json]:
    selector = f"--field-selector=spec.nodeName={node.name}"
    listed = cloud.kubectl(clouds, "get", "pods", "--all-namespaces", selector, "--output=json")
    return list(json.loads(listed)["items"])


def _running(node: Machine) -> set[str]:
    containers = set(
        node.run("ctr", "--namespace=k8s.io", "containers", "list", "--quiet", IS_CONTAINER).split()
    )
    tasks = map(str.split, node.run("ctr", "--namespace=k8s.io", "tasks", "list").splitlines())
    return {columns[0] for columns in tasks if columns[-1] == "RUNNING"} & containers
