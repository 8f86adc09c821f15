"""A label installs a hub on a real node, by a Job that a real kubelet runs, and its removal removes the hub; the pool's
annotation changes the version."""

from __future__ import annotations

import json

import pytest

from kube.json_type import Json
from kube.option import VERSION
from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from tests.node.support import hub, hub_image
from tests.node.support.callers import LONG, Caller
from tests.node.support.upgrades import Upgrades, check

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]
LABEL = "openyurt.io/is-edge-worker"
FILES = """\
find /etc/kubernetes /etc/systemd -type f -exec sha256sum {} + | sort
ls /sys/class/net | grep edgehub || true
"""


def fleet(clouds: Machine) -> list[Json]:
    """Return the rows of the fleet table."""
    asked = ("edgehub", "fleet", f"--kubeconfig={cloud.ADMIN}", "--json")
    return list(json.loads(clouds.run(*asked)))


def condition(clouds: Machine, node: Machine) -> Json:
    """Return the Node's condition `HubInstalled`, with empty strings if it has none."""
    found = json.loads(cloud.kubectl(clouds, "get", "node", node.name, "--output=json"))["status"]
    own = {each["type"]: each for each in found["conditions"]}.get("HubInstalled", {})
    return {"reason": "", "message": "", **own}


def install(node: Machine, clouds: Machine) -> None:
    """Label the node, and wait until it has its hub."""
    cloud.kubectl(clouds, "label", "node", node.name, f"{LABEL}=true")
    until("the hub is installed", lambda: condition(clouds, node)["reason"] == "Installed", LONG)


def test_a_label_installs_a_hub_by_a_job_and_its_removal_removes_it(bare: Machine, clouds: Machine) -> None:
    def check_job(node: str) -> None:
        """Check that the Job ran with the host's processes, network and root, and the hub is a static pod with the
        Job's image."""
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

    before = Caller("before", bare, clouds)
    before.start()
    former = files(bare)

    install(bare, clouds)
    assert "https://127.0.0.1:10268" in bare.run("grep", "server:", "/etc/kubernetes/kubelet.conf")
    check_job(bare.name)
    (row,) = (each for each in fleet(clouds) if each["node"] == bare.name)
    assert row["status"]["pool"] == hub.POOL
    behind = Caller("behind", bare, clouds)
    behind.start()
    before.wait_for_calls()

    restarts = behind.restarts()
    cloud.kubectl(clouds, "label", "node", bare.name, f"{LABEL}-")
    until("the hub is removed", lambda: condition(clouds, bare)["reason"] == "Uninstalled", LONG)
    cloud.kubectl(clouds, "wait", "--for=condition=Ready", f"--timeout={LONG:.0f}s", f"node/{bare.name}")
    assert files(bare) == former
    assert bare.name not in {each["node"] for each in fleet(clouds)}
    behind.wait_for_calls()
    assert behind.restarts() == restarts + 1
    assert behind.calls()[-1].address == before.calls()[-1].address
    before.wait_for_calls()


def test_a_failed_upgrade_of_the_static_pod_restores_the_former_hub(
    instance: Instance, bare: Machine, clouds: Machine
) -> None:
    """Run here, before other modules move the clocks: the hub in a container would have the machine's."""
    former, target, bad, missing = (
        f"--static-pod={hub_image.named(version)}"
        for version in (VERSION, hub_image.OTHER, hub_image.BAD, hub_image.MISSING)
    )
    bare.run("edgehub", "install", former, f"--node={bare.name}")
    # Few kills: kubelet backs off before each restart of a container within ten minutes.
    steps = 1, 3, 6
    upgrades = Upgrades(bare, hub.MANIFEST, former, target, [bad, missing], steps)
    upgrades.die_amid_installation(former, "--", "--port=10361", "--tls-port=10368")
    check(upgrades, instance, clouds)


def test_the_annotation_of_a_pool_gives_its_nodes_another_version(
    instance: Instance, bare: Machine, clouds: Machine
) -> None:
    """A hub installed by a user gets a version that fails, one whose image cannot be pulled, a good one, and then a
    reboot without a link."""

    def ask_for(version: str) -> None:
        cloud.kubectl(
            clouds, "annotate", "nodepool", hub.POOL, f"edgehub.io/hub-version={version}", "--overwrite"
        )

    def has_failed() -> bool:
        return bool(condition(clouds, bare)["reason"] == "UpgradeFailed")

    def row() -> Json:
        """Return the status reported by the hub; empty while a hub is replaced."""
        return {
            name: value
            for each in fleet(clouds)
            if each["node"] == bare.name
            for name, value in each["status"].items()
        }

    def images() -> list[str]:
        """Return the image of the hub's pod, at kubelet and in the cloud."""
        pod = f"pod/edgehub-{bare.name}"
        path = "--output=jsonpath={.spec.containers[0].image}"
        manifest = json.loads(bare.run("cat", hub.MANIFEST))
        known = cloud.kubectl(clouds, "--namespace=kube-system", "get", pod, path)
        return [manifest["spec"]["containers"][0]["image"], known]

    install(bare, clouds)

    ask_for(hub_image.BAD)
    until("the node has failed", has_failed, LONG)
    assert "the previous hub runs again" in condition(clouds, bare)["message"]
    until("the hub has told", lambda: hub_image.BAD in row().get("rollback", ""), LONG)
    assert images() == [hub_image.NAME] * 2

    ask_for(hub_image.MISSING)
    until("the reason is told", lambda: "its Job does not start" in condition(clouds, bare)["message"], LONG)
    assert hub_image.named(hub_image.MISSING) in condition(clouds, bare)["message"]
    cloud.kubectl(clouds, "annotate", "nodepool", hub.POOL, "edgehub.io/ready-timeout=1s")
    until("the node has failed", has_failed, LONG)

    cloud.kubectl(clouds, "annotate", "nodepool", hub.POOL, "edgehub.io/ready-timeout-")
    ask_for(hub_image.OTHER)
    until("the hub is upgraded", lambda: condition(clouds, bare)["reason"] == "Upgraded", LONG)
    assert row().get("version") == hub_image.OTHER
    until("the cloud knows the image", lambda: images() == [hub_image.named(hub_image.OTHER)] * 2, LONG)

    lifecycle.reboot(instance, bare.name, offline=True, later="")
    hub.wait_until_ready(bare)
    behind = Caller("rebooted", bare, clouds)
    network.heal(clouds, bare.name)
    cloud.kubectl(clouds, "wait", "--for=condition=Ready", f"--timeout={LONG:.0f}s", f"node/{bare.name}")
    behind.start()
