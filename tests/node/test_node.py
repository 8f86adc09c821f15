"""A real node: it joins its cluster, is cut off and reconnected, and keeps its disk over a reboot."""

from __future__ import annotations

import pytest

from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.boot import OWN_SYSCTLS
from scripts.node_machine.clock import units
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import CLOUD_ADDRESS, Cut

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]
NODE = "edge-1"
LONG = 120.0
"""Seconds until pods are ready after a reboot: half a minute on idle cores."""


def reaches_cloud(node: Machine) -> bool:
    asked = ("curl", "--silent", "--insecure", "--max-time", "2", f"https://{CLOUD_ADDRESS}:6443/readyz")
    return node.try_run(*asked).stdout == "ok"


def test_kubelet_was_started_by_kubeadm(node: Machine, clouds: Machine) -> None:
    drop_ins = node.run("systemctl", "show", "kubelet", "--property=DropInPaths", "--value")
    assert "10-kubeadm.conf" in drop_ins
    assert "kubelet-client-current.pem" in node.run("cat", "/etc/kubernetes/kubelet.conf")
    assert cloud.kubectl(
        clouds, "get", "node", NODE, "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}"
    ).startswith("containerd://2")


@pytest.mark.parametrize("how", Cut)
def test_a_cut_link_stays_cut_until_restored(node: Machine, clouds: Machine, how: Cut) -> None:
    until("the cloud is reached", lambda: reaches_cloud(node), LONG)
    network.cut(clouds, NODE, how)
    try:
        assert not reaches_cloud(node)
    finally:
        network.heal(clouds, NODE)
    until("the cloud is reached again", lambda: reaches_cloud(node), LONG)


def test_a_reboot_clears_rules_and_processes_and_retains_the_disk(
    instance: Instance, node: Machine, clouds: Machine
) -> None:
    def service_rules() -> int:
        return node.run("iptables-save", "-t", "nat").count("-A KUBE-SEP")

    node.write("/var/lib/kept", "kept")
    before = node.run("cat", "/proc/sys/kernel/random/boot_id")
    try:
        lifecycle.reboot(instance, NODE, offline=True, later="")
        assert node.run("cat", "/var/lib/kept") == "kept"
        assert node.run("cat", "/proc/sys/kernel/random/boot_id") != before
        assert not reaches_cloud(node)
        assert service_rules() == 0
    finally:
        network.heal(clouds, NODE)
    until("kube-proxy has written its rules", service_rules, LONG)
    cloud.wait_until_ready(clouds, [NODE])


def test_kubelet_changes_no_setting_of_this_machine(node: Machine) -> None:
    def read(name: str) -> str:
        with open(f"/proc/sys/{name}") as file:
            return file.read()

    changed = [name for name in OWN_SYSCTLS if node.run("cat", f"/proc/sys/{name}") != read(name)]
    assert "vm/overcommit_memory" in changed


def test_a_shifted_clock_affects_one_program_only(node: Machine) -> None:
    asked = ("date", "+%s")
    later, now = int(node.run(*units.LATER.split(), "86400", *asked)), int(node.run(*asked))
    assert 86400 - LONG < later - now <= 86400
