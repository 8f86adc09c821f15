"""A label gives a real node its hub, by a Job that a real kubelet runs, and the label's end takes it away."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kube.json_type import Json
from scripts.node_machine import cloud, lifecycle
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from tests.node.support import callers, hub, hub_image
from tests.node.support.callers import LONG, Caller

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]
POOL, POOL_LABEL = "labelled", "apps.openyurt.io/nodepool"
FILES = """\
find /etc/kubernetes /etc/systemd -type f -exec sha256sum {} + | sort
ls /sys/class/net | grep edgehub || true
"""


@pytest.fixture
def bare(instance: Instance, clouds: Machine, manager: None, prepared: None) -> Iterator[Machine]:
    """A node that never had a hub, with the hub's image, in a pool of its own."""
    lifecycle.up(instance, 2)
    node = Machine(instance, "edge-2")
    hub_image.import_image(node)
    hub.prepare_pool(clouds, POOL)
    cloud.kubectl(clouds, "label", "node", node.name, f"{POOL_LABEL}={POOL}")
    yield node
    callers.end_all(clouds)
    cloud.kubectl(clouds, "delete", "nodepool", POOL)
    cloud.kubectl(clouds, "--namespace=kube-system", "delete", "jobs", "--selector=edgehub.io/job=node")
    lifecycle.remove(instance, node.name)


def test_a_label_installs_a_hub_by_a_job_and_its_end_removes_it(bare: Machine, clouds: Machine) -> None:
    def check_job(node: str) -> None:
        """The Job ran with the host's processes, network and root, and the hub is a static pod of the Job's image."""
        listed = (
            "--namespace=kube-system",
            "get",
            "pods",
            f"--field-selector=spec.nodeName={node}",
            "--output=json",
        )
        pods = {
            pod["metadata"]["labels"].get("edgehub.io/job") or pod["metadata"]["name"]: pod
            for pod in json.loads(cloud.kubectl(clouds, *listed))["items"]
        }
        job, static = pods["node"], pods[f"edgehub-{node}"]
        assert (job["status"]["phase"], job["spec"]["hostPID"]) == ("Succeeded", True)
        for pod in (job, static):
            assert [each["image"] for each in pod["spec"]["containers"]] == [hub_image.NAME]
        assert static["status"]["phase"] == "Running"

    def files(node: Machine) -> str:
        """Return the files that an installation changes, with their contents, and the interfaces."""
        return node.run("sh", "-euc", FILES)

    def fleet() -> list[Json]:
        """The rows of the fleet."""
        asked = ("edgehub", "fleet", f"--kubeconfig={cloud.ADMIN}", "--json")
        return list(json.loads(clouds.run(*asked)))

    def reason(node: str) -> str:
        """The reason of the Node's condition `HubInstalled`."""
        path = '--output=jsonpath={.status.conditions[?(@.type=="HubInstalled")].reason}'
        return cloud.kubectl(clouds, "get", "node", node, path)

    before = Caller("before", bare, clouds)
    before.start()
    former = files(bare)

    label = "openyurt.io/is-edge-worker"
    cloud.kubectl(clouds, "label", "node", bare.name, f"{label}=true")
    until("the hub is installed", lambda: reason(bare.name) == "Installed", LONG)
    assert "https://127.0.0.1:10268" in bare.run("grep", "server:", "/etc/kubernetes/kubelet.conf")
    check_job(bare.name)
    (row,) = (each for each in fleet() if each["node"] == bare.name)
    assert row["status"]["pool"] == POOL
    behind = Caller("behind", bare, clouds)
    behind.start()
    before.wait_for_calls()

    restarts = behind.restarts()
    cloud.kubectl(clouds, "label", "node", bare.name, f"{label}-")
    until("the hub is removed", lambda: reason(bare.name) == "Uninstalled", LONG)
    cloud.kubectl(clouds, "wait", "--for=condition=Ready", f"--timeout={LONG:.0f}s", f"node/{bare.name}")
    assert files(bare) == former
    assert bare.name not in {each["node"] for each in fleet()}
    behind.wait_for_calls()
    assert behind.restarts() == restarts + 1
    assert behind.calls()[-1].address == before.calls()[-1].address
    before.wait_for_calls()
