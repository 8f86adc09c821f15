"""A node with its hub during an outage: a reboot, crashes and restarts, and the recovery of the cloud."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

from kube.json_type import Json
from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import Cut
from tests.node.support import callers, hub, status
from tests.node.support.callers import LONG, Caller

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]
MOVED = "1h"
"""The offset of the hub's clock after the reboot, so that kubelet requests another token for each pod."""


@pytest.fixture(scope="module")
def caller(node: Machine, clouds: Machine, behind_hub: None, prepared: None) -> Caller:
    """Start a pod that runs through the complete outage."""
    stays = Caller("stays", node, clouds)
    stays.start()
    return stays


@pytest.fixture(scope="module")
def leaver(node: Machine, clouds: Machine, caller: Caller) -> Caller:
    """Start a pod that is deleted in the cloud during the outage."""
    leaves = Caller("leaves", node, clouds)
    leaves.start()
    return leaves


@pytest.fixture(scope="module")
def rebooted(instance: Instance, node: Machine, clouds: Machine, caller: Caller, leaver: Caller) -> None:
    """Return the node after a power cut in an outage and a boot an hour later, still cut off."""
    hub.make_autonomous(clouds, node.name)
    network.cut(clouds, node.name, Cut.HOLE)
    caller.wait_for_calls()
    lifecycle.reboot(instance, node.name, offline=True, later=MOVED)


def test_all_pods_run_after_a_reboot_in_an_outage(
    rebooted: None, node: Machine, caller: Caller, leaver: Caller
) -> None:
    until(
        "kube-proxy has written its rules",
        lambda: node.run("iptables-save", "-t", "nat").count("-A KUBE-SEP"),
        LONG,
    )
    for each in (caller, leaver):
        each.wait_for_calls()
    assert " FAKETIME=+" in node.run("systemctl", "show", "edgehub", "--property=Environment")


def test_services_and_dns_answer_soon_after_a_reboot_in_an_outage(
    rebooted: None, node: Machine, caller: Caller
) -> None:
    """Components back off from a hub that refuses them, for 30 s and more."""
    caller.wait_for_calls()
    shown = node.run(
        "systemctl", "show", "kubelet", "--property=ActiveEnterTimestamp", "--timestamp=unix", "--value"
    )
    began = int(shown.strip().lstrip("@"))
    first = next(call.began for call in caller.calls() if call.is_answered and call.began >= began)
    print(
        f"after the reboot offline a pod had the API server and DNS {first - began} s after kubelet's start"
    )
    # The maximum seconds from kubelet's start to the first responses to a pod.
    soon = 30
    assert first - began <= soon


def test_a_hub_killed_in_an_outage_serves_again(rebooted: None, node: Machine, caller: Caller) -> None:
    former = hub.pid(node)
    node.run("systemctl", "kill", "--signal=KILL", "edgehub")
    until("another hub runs", lambda: hub.pid(node) not in (former, "0"), LONG)
    hub.wait_until_ready(node)
    caller.wait_for_calls()


@pytest.mark.parametrize("service", ["kubelet", "containerd"])
def test_kubelet_restarts_a_crashed_container_in_an_outage(
    rebooted: None, node: Machine, caller: Caller, service: str
) -> None:
    node.run("systemctl", "restart", service)
    former = caller.restarts()
    caller.kill()
    until("the container has been started again", lambda: caller.restarts() > former, LONG)
    caller.wait_for_calls()


def test_kube_proxy_and_coredns_restart_in_an_outage(rebooted: None, node: Machine, caller: Caller) -> None:
    node.run("iptables", "--table=nat", "--flush", "KUBE-SERVICES")
    for program in ("kube-proxy", "coredns"):
        node.run("pkill", "-KILL", "-x", program)
    until(
        "kube-proxy has written its rules",
        lambda: "-A KUBE-SERVICES" in node.run("iptables-save", "-t", "nat"),
        LONG,
    )
    caller.wait_for_calls()


def test_a_lost_sandbox_is_recreated_in_an_outage(rebooted: None, node: Machine, caller: Caller) -> None:
    former, address = caller.restarts(), status.address(node, caller.name)
    caller.kill_sandbox()
    until("the container has been started again", lambda: caller.restarts() > former, LONG)
    caller.wait_for_calls()
    until("the hub has the new address", lambda: status.address(node, caller.name) != address, LONG)


def test_a_container_whose_image_is_gone_waits_for_it_in_an_outage(
    rebooted: None, node: Machine, caller: Caller
) -> None:
    name, former = callers.image(node, "kubectl"), caller.restarts()
    ctr = ("ctr", "--namespace=k8s.io", "images")
    node.run(*ctr, "tag", name, "kept.test/image:1")
    node.run(*ctr, "remove", "--sync", name)
    try:
        caller.kill()
        wanted = "ErrImageNeverPull"
        until("kubelet lacks the image", lambda: status.waits_for(node, caller.name) == wanted, LONG)
    finally:
        node.run(*ctr, "tag", "kept.test/image:1", name)
    until("the container has been started again", lambda: caller.restarts() > former, LONG)
    caller.wait_for_calls()


def test_the_hub_is_upgraded_in_an_outage_and_survives_a_refused_installation(
    rebooted: None, node: Machine, caller: Caller
) -> None:
    former = hub.pid(node)
    node.run("edgehub", "upgrade", "--healthy=5")
    upgraded = hub.pid(node)
    assert upgraded != former
    caller.wait_for_calls()
    assert "cloud" in node.try_run("edgehub", "install").stdout
    assert hub.pid(node) == upgraded
    caller.wait_for_calls()


def test_a_static_pod_is_started_and_changed_in_an_outage(rebooted: None, node: Machine) -> None:
    def static_pod(image: str, name: str) -> Json:
        """Return a static pod whose process has a name."""
        command = ["sh", "-c", "sleep infinity; true", name]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "static"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {"name": "static", "image": image, "imagePullPolicy": "IfNotPresent", "command": command}
                ],
            },
        }

    static = "/etc/kubernetes/manifests/static.yaml"
    try:
        for name in ("first", "second"):
            node.write(static, json.dumps(static_pod(callers.image(node, "busybox"), name)))
            until(f"{name} runs", partial(runs, node, f"sleep infinity.*{name}"), LONG)
        until("first has ended", lambda: not runs(node, "sleep infinity.*first"), LONG)
    finally:
        node.run("rm", "-f", static)


def test_a_hub_without_stored_reviews_of_callers_refuses_them(
    rebooted: None, node: Machine, caller: Caller
) -> None:
    """The tests above depend on the stored reviews, as nothing else verifies the caller's token."""
    node.run("systemctl", "stop", "edgehub.socket", "edgehub")
    # The key of the digests by which the hub recognizes callers' tokens.
    callers_key = "/var/lib/edgehub/callers.key"
    node.run("rm", callers_key)
    node.run("systemctl", "start", "edgehub.socket", "edgehub")
    hub.wait_until_ready(node)
    began = int(time.time())
    until("a call is refused", lambda: refused(caller, began), LONG)
    assert not [call for call in caller.calls() if call.began > began and call.api == "yes"]


def test_changes_in_the_cloud_during_an_outage_reach_the_node_afterwards(
    rebooted: None, node: Machine, clouds: Machine, caller: Caller, leaver: Caller
) -> None:
    cloud.kubectl(clouds, "delete", "pod", leaver.name, "--wait=false")
    callers.set_value(clouds, "second")
    network.heal(clouds, node.name)
    cloud.kubectl(clouds, "wait", f"--timeout={LONG:.0f}s", "--for=delete", f"pod/{leaver.name}")
    cloud.wait_until_ready(clouds, [node.name])
    status.wait_until_equal(clouds, node)
    caller.wait_for_calls("second")


def runs(node: Machine, pattern: str) -> bool:
    return node.try_run("pgrep", "-f", pattern).returncode == 0


def refused(caller: Caller, since: int) -> bool:
    """Return True if a call since then got the hub's refusal of an unknown caller."""
    return any(call.began > since and "cannot_be_verified" in call.api for call in caller.calls())
