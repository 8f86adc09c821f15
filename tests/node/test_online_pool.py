"""Two nodes of a pool with their hubs: the leader fails, one borrows the other's link, and both are cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import Cut
from tests.node.support import callers, hub, status
from tests.node.support.callers import LONG, Caller
from tests.support.objects import obj

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]
POOL, POOL_LABEL = "site", "apps.openyurt.io/nodepool"
SERVICE, OTHER = "pool-callers", "192.0.2.7"
"""The Service of the callers on both nodes, and the endpoint of another Service."""
SHARED = "pool-shared"


@pytest.fixture(scope="module")
def second(
    instance: Instance, node: Machine, clouds: Machine, behind_hub: None, prepared: None
) -> Iterator[Machine]:
    """Return the other node of the pool, with its own hub, until the tests of this file end."""
    lifecycle.up(instance, 2)
    other = Machine(instance, "edge-2")
    hub.prepare_pool(clouds, POOL)
    hub.install(other)
    hub.start_pods_anew(clouds, other.name)
    for each in (node, other):
        cloud.kubectl(clouds, "label", "--overwrite", "node", each.name, f"{POOL_LABEL}={POOL}")
    until("the pool has a leader", lambda: leader(clouds), LONG)
    yield other
    for each in (node, other):
        network.heal(clouds, each.name)
        cloud.kubectl(clouds, "label", "node", each.name, f"{POOL_LABEL}-")
    callers.end_all(clouds)
    hub.uninstall(other)
    cloud.kubectl(clouds, "delete", "nodepool", POOL)
    cloud.kubectl(clouds, "delete", "service", SERVICE, SHARED, "--ignore-not-found")
    lifecycle.remove(instance, other.name)


@pytest.fixture(scope="module")
def both(node: Machine, second: Machine, clouds: Machine) -> list[Caller]:
    """Run a caller on each node, and a Service with both."""
    made = [Caller(f"on-{each.name}", each, clouds) for each in (node, second)]
    for caller in made:
        caller.start()
    spec = {"selector": {callers.LABEL: ""}, "ports": [{"port": 80}]}
    apply(clouds, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": spec})
    return made


def test_a_follower_continues_when_the_leader_dies(node: Machine, second: Machine, clouds: Machine) -> None:
    def share() -> None:
        """Give a Service without a selector an endpoint."""
        apply(
            clouds,
            obj("Service", SHARED, spec={"ports": [{"port": 80}]}),
            obj(
                "EndpointSlice",
                SHARED,
                labels={"kubernetes.io/service-name": SHARED},
                addressType="IPv4",
                ports=[{"port": 80}],
                endpoints=[{"addresses": [OTHER]}],
            ),
        )

    dead, follower = (node, second) if leader(clouds) == node.name else (second, node)
    dead.run("systemctl", "kill", "--signal=STOP", "edgehub")
    try:
        share()
        until("the follower's kube-proxy has the new endpoint", lambda: OTHER in rules(follower), LONG)
    finally:
        dead.run("systemctl", "kill", "--signal=CONT", "edgehub")
    until("the leader's kube-proxy has it, too", lambda: OTHER in rules(dead), LONG)


def test_a_node_with_a_cut_link_borrows_that_of_its_neighbour(
    node: Machine, second: Machine, clouds: Machine, both: list[Caller]
) -> None:
    network.cut(clouds, second.name, Cut.HOLE)
    try:
        until("the link is borrowed", lambda: f"node {node.name}" in ready(second), LONG)
        before = renewed(clouds, second.name)
        until("its lease is renewed in the cloud", lambda: renewed(clouds, second.name) != before, LONG)
        both[1].wait_for_calls()
    finally:
        network.heal(clouds, second.name)
    until("its own link is used again", lambda: "node" not in ready(second), LONG)


def test_kube_proxy_follows_the_reports_of_the_neighbours_kubelet(
    node: Machine, second: Machine, clouds: Machine, both: list[Caller]
) -> None:
    former = status.address(node, both[0].name)
    until("the neighbour knows the pod", lambda: f"{former}:80" in rules(second), LONG)
    for each in (node, second):
        network.cut(clouds, each.name, Cut.HOLE)
    until("both are cut off", lambda: not (ready(node) or ready(second)).startswith("ok, with"), LONG)
    for caller in both:
        caller.wait_for_calls()
    both[0].kill_sandbox()
    until("the pod has another address", lambda: status.address(node, both[0].name) not in (former, ""), LONG)
    address = status.address(node, both[0].name)
    until("the neighbour's kube-proxy has it", lambda: f"{address}:80" in rules(second), LONG)
    assert f"{former}:80" not in rules(second)


def leader(clouds: Machine) -> str:
    """Return the node that leads the pool; "" if there is none."""
    listed = ("--namespace=kube-system", "get", "configmap", f"leader-hub-{POOL}", "--ignore-not-found")
    said = cloud.kubectl(clouds, *listed, "--output=jsonpath={.data.leaders}")
    return said.partition("/")[0]


def apply(clouds: Machine, *manifests: object) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": manifests}
    cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(listed))


def rules(node: Machine) -> str:
    return node.run("iptables-save", "-t", "nat")


def ready(node: Machine) -> str:
    """Return the hub's report on its link to the cloud."""
    return node.try_run("curl", "--silent", "--max-time", "5", "http://127.0.0.1:10267/readyz").stdout


def renewed(clouds: Machine, node: str) -> str:
    lease = ("--namespace=kube-node-lease", "get", "lease", node)
    return cloud.kubectl(clouds, *lease, "--output=jsonpath={.spec.renewTime}")
