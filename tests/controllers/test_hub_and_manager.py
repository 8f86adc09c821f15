"""Hubs with the manager: hubs filter by the manager's pools, and share one copy through its elected leaders."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from kube.certificate_authority import names_of
from tests.cloud.ports import ReservedPort
from tests.cloud.rest import RestClient
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.scene import NODES, PEER, POOL_LABEL, POOLS, Scene, leaders
from tests.hub.support.process import Hub

pytestmark = [pytest.mark.real]


@pytest.mark.usefixtures("manager")
def test_a_hub_follows_the_pools_of_the_manager(scene: Scene, tmp_path: Path) -> None:
    def api_server_address(kubelet: RestClient) -> str:
        """Return the ClusterIP of default/kubernetes that kubelet gives to pods."""
        services = kubelet.get("/api/v1/services", resourceVersion="0")["items"]
        (found,) = (each for each in services if each["metadata"]["name"] == "kubernetes")
        return str(found["spec"]["clusterIP"])

    pool = scene.pool(interConnectivity=True)
    own, other = scene.node(pool, address="10.0.0.77"), scene.node()
    service = scene.service("openyurt.io/nodepool")
    name = scene.slice(service, own, other)
    identity = scene.cloud.node_kubeconfig(own)
    for_pods = ("--pod-address", "169.254.2.1", "--tls-signer", "cluster")
    with (
        Hub(tmp_path, scene.cloud.url, node=own, kubeconfig=identity, flags=for_pods) as hub,
        RestClient(hub.url, user_agent="kube-proxy/v1.36.3 (linux/amd64)") as kube_proxy,
    ):

        def seen() -> list[str]:
            return scene.seen_nodes(kube_proxy, name)

        scene.until(lambda: seen() == [own])
        scene.relabel(other, pool)
        scene.until(lambda: seen() == [own, other])
        scene.relabel(other, None)
        scene.until(lambda: seen() == [own])
        assert seen() == [own]
        check_certificate(scene, hub, "serving", "cluster.pem", "10.0.0.77", "169.254.2.1")
        with RestClient(hub.url, user_agent="kubelet/v1.36.3 (linux/amd64)") as kubelet:
            scene.until(lambda: api_server_address(kubelet) == "169.254.2.1")


def test_the_fleet_table_has_all_hubs(scene: Scene, manager: ManagerProcess, tmp_path: Path) -> None:
    """The manager's page and `edgehub fleet` show the report in each node's Lease, and kubectl shows the leaders."""
    node = scene.node()
    identity = scene.cloud.node_kubeconfig(node)
    lease = {"metadata": {"name": node}, "spec": {"holderIdentity": node, "leaseDurationSeconds": 20}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    with (
        Hub(tmp_path, scene.cloud.url, node=node, kubeconfig=identity) as hub,
        RestClient(hub.url, user_agent="kubelet/v1.36.3 (linux/amd64)") as kubelet,
    ):
        kubelet.post(leases, lease)
        scene.until(lambda: bool(manager.fleet(node)))
        found = manager.fleet(node)
        command = [sys.executable, "-m", "addons.command", "fleet"]
        flags = ["--kubeconfig", str(scene.cloud.admin_kubeconfig())]
        printed = subprocess.run(
            [*command, *flags], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    assert found["status"]["via"] == scene.cloud.url
    assert found["silent"] is None
    assert not found["needs"]
    [line] = [each for each in printed.splitlines() if each.startswith(node)]
    assert scene.cloud.url in line
    assert "LINK" in printed.splitlines()[0]


def check_certificate(scene: Scene, hub: Hub, use: str, name: str, *names: str) -> None:
    """Check that the cluster signed a port's certificate, approved by the manager, and that the metric has its
    expiry."""
    file = hub.state / "pki" / name
    scene.until(file.exists)
    found = x509.load_pem_x509_certificate(file.read_bytes())
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(scene.cloud.authority.certificate))
    assert names_of(found) == names

    def left() -> float:
        return (found.not_valid_after_utc - datetime.now(UTC)).total_seconds()

    before = left()
    said = hub.metric("edgehub_certificate_expiry_seconds", use=use)
    assert left() <= said <= before


class PoolNode:
    """A node of a pool with its hub; the cluster signs its peer port's certificate."""

    def __init__(self, scene: Scene, pool: str, folder: Path, address: str, port: int) -> None:
        self._scene = scene
        self.address = address
        self.name = scene.node(address=address)
        # The hub itself reports that it can lead.
        scene.admin.patch(f"{NODES}/{self.name}", {"metadata": {"annotations": {PEER: None}}})
        scene.relabel(self.name, pool)
        self.hub = Hub(
            *(folder / self.name, scene.cloud.url),
            node=self.name,
            kubeconfig=scene.cloud.node_kubeconfig(self.name),
            flags=("--peer-port", str(port), "--peer-address", address),
        )

    def is_(self, role: str) -> bool:
        found = self.hub.debug("pool")
        assert isinstance(found, dict)
        return bool(found["role"] == role)

    def can_lead(self) -> bool:
        """Return True if the hub has reported so."""
        node = self._scene.admin.get(f"{NODES}/{self.name}")
        return PEER in node["metadata"].get("annotations", {})

    def slices(self) -> set[str]:
        """Return the slices that kube-proxy on the node gets."""
        with RestClient(self.hub.url, user_agent="kube-proxy/v1.36.3 (linux/amd64)") as kube_proxy:
            found = kube_proxy.get(self._scene.slices, resourceVersion="0")["items"]
        return {each["metadata"]["name"] for each in found}

    def reads_from(self) -> set[tuple[str, int]]:
        """Return the servers of the sources of slices, and how often these were listed."""
        path = "/apis/discovery.k8s.io/v1/endpointslices"
        return {(each["server"], each["lists"]) for each in self.hub.sources() if each["path"] == path}


@pytest.fixture
def nodes(scene: Scene, tmp_path: Path) -> Iterator[list[PoolNode]]:
    """Run three nodes of a pool that elects one leader, with their hubs."""
    pool = scene.pool(interConnectivity=True)
    reserved = (
        ReservedPort()
    )  # reserved on 127.0.0.1 too, so that no other listener of the hub gets the peer port's number
    addresses = [f"127.0.36.{number}" for number in (1, 2, 3)]
    made = [PoolNode(scene, pool, tmp_path, each, reserved.number) for each in addresses]
    try:
        for each in made:
            each.hub.launch()
        for each in made:
            each.hub.wait_until_ready()
        yield made
    finally:
        for each in made:
            each.hub.stop()
        reserved.release()


@pytest.mark.usefixtures("manager")
def test_hubs_share_one_copy_through_the_leader_elected_by_the_manager(
    scene: Scene, nodes: list[PoolNode]
) -> None:
    """From the approval of certificates to the removal of a leader, nothing is listed twice."""
    [pool] = {scene.admin.get(f"{NODES}/{each.name}")["metadata"]["labels"][POOL_LABEL] for each in nodes}
    elected = scene.sees(POOLS, pool, lambda obj: len(leaders(obj)) == 1)
    [first] = [each for each in nodes if [each.name] == leaders(elected)]
    others = [each for each in nodes if each is not first]
    check_certificate(scene, first.hub, "peer", "peer.pem", first.address)
    scene.until(lambda: first.is_("leader") and all(each.is_("follower") for each in others))
    for each in others:
        each.slices()
    scene.until(lambda: all(each.reads_from() == {(first.name, 1)} for each in others))
    name = scene.slice(scene.service(), first.name)
    scene.until(lambda: all(name in each.slices() for each in others))

    scene.until(lambda: all(each.can_lead() for each in others))
    scene.set_node(first.name, ready=False, address=first.address)
    deposed = scene.sees(POOLS, pool, lambda obj: leaders(obj) not in ([], [first.name]))
    [second] = [each for each in others if [each.name] == leaders(deposed)]
    [third] = [each for each in others if each is not second]
    scene.until(lambda: second.is_("leader") and first.is_("follower"))
    name = scene.slice(scene.service(), second.name)
    scene.until(lambda: all(name in each.slices() for each in nodes))
    scene.until(lambda: third.reads_from() == {(second.name, 1)})
    assert second.reads_from() == {("cloud", 1)}
    assert f'"nodeName":"{second.name}"' in scene.cloud.kubectl("get", "np", pool, "-o", "wide").stdout
