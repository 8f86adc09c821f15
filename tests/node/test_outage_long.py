"""A node with its hub in an outage of weeks: power cuts, with all clocks shifted, and the recovery of the cloud."""

from __future__ import annotations

import json

import pytest

from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import Cut
from tests.node.support import callers, hub, status
from tests.node.support.callers import LONG, Caller

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]
SHORT = "short"
"""A pod whose token has another audience than the API server, so that kube-apiserver does not extend it to a year."""


@pytest.fixture(scope="module")
def caller(node: Machine, clouds: Machine, behind_hub: None, prepared: None) -> Caller:
    stays = Caller("stays", node, clouds)
    stays.start()
    return stays


@pytest.fixture(scope="module")
def cut_off(node: Machine, clouds: Machine, caller: Caller) -> None:
    """Cut the link, while a pod runs whose token will expire."""
    cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(short(node)))
    cloud.kubectl(clouds, "wait", f"--timeout={LONG:.0f}s", "--for=condition=Ready", f"pod/{SHORT}")
    hub.make_autonomous(clouds, node.name)
    network.cut(clouds, node.name, Cut.HOLE)
    caller.wait_for_calls()


@pytest.mark.parametrize("later", ["24h", "40d"])
def test_pods_run_after_a_much_later_reboot_except_with_an_expired_token(
    cut_off: None, instance: Instance, node: Machine, caller: Caller, later: str
) -> None:
    def proxy_log() -> str:
        """Return the first letter and the day of each line logged by kube-proxy since the boot."""
        return node.run("sh", "-c", "tail -qn 5 /var/log/pods/kube-system_kube-proxy-*/kube-proxy/*.log")

    def today() -> str:
        """Return the day by the node's shifted clock, in klog's format."""
        return node.run("date", "--utc", "+I%m%d").strip()

    lifecycle.reboot(instance, node.name, offline=True, later=later)
    until(
        "kube-proxy has written its rules",
        lambda: "-A KUBE-SEP" in node.run("iptables-save", "-t", "nat"),
        LONG,
    )
    caller.wait_for_calls()
    assert today() in proxy_log()
    until(
        "kubelet has been refused the token",
        lambda: (
            SHORT in node.run("journalctl", "--no-pager", "--boot", "--unit=kubelet", "--grep=fetch token")
        ),
        LONG,
    )
    assert not status.runs(node, SHORT)


def test_cloud_and_node_agree_after_the_outage(
    cut_off: None, node: Machine, clouds: Machine, caller: Caller
) -> None:
    network.heal(clouds, node.name)
    cloud.kubectl(clouds, "wait", f"--timeout={LONG:.0f}s", "--for=condition=Ready", f"pod/{SHORT}")
    cloud.wait_until_ready(clouds, [node.name])
    status.wait_until_equal(clouds, node)
    caller.wait_for_calls()


def short(node: Machine) -> dict[str, object]:
    """Return the pod with a token valid for ten minutes."""
    token = {"serviceAccountToken": {"path": "token", "audience": SHORT, "expirationSeconds": 600}}
    container = {
        "name": SHORT,
        "image": callers.image(node, "busybox"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "volumeMounts": [{"name": SHORT, "mountPath": "/tokens"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": SHORT, "labels": {callers.LABEL: ""}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node.name},
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [container],
            "volumes": [{"name": SHORT, "projected": {"sources": [token]}}],
        },
    }
