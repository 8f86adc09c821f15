"""Nodes of k3s and of SuperEdge get a hub and lose it, by the steps in docs/nodes.md."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from kube.http.kubeconfig import load_kubeconfig
from tests.cloud.fixtures import HUB_RBAC, OpenLink
from tests.cloud.hollow import is_ready
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.machine import LIMIT, Machine, edgehub

K3S = "k3s-agent.service"
AGENT = "var/lib/rancher/k3s/agent"
OF_K3S = "etc/rancher/k3s/edgehub-kubelet.kubeconfig"


@pytest.fixture
def local(real_cloud: RealCloud, link: OpenLink) -> Link:
    """Forward a port on the node to the cloud, like k3s' agent and lite-apiserver."""
    return link(real_cloud.host, real_cloud.port)


@pytest.fixture
def machine(
    real_cloud: RealCloud, local: Link, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> Machine:
    """Return a node with kubeadm's files, which is not started; its kubeconfigs point at the local port."""
    real_cloud.apply(HUB_RBAC)
    return Machine(tmp_path, real_cloud, f"https://{local.host}:{local.port}", node, cloud_programs)


def lay_out_k3s(machine: Machine) -> None:
    """Write the files of k3s' agent in place of kubeadm's."""
    root, agent = machine.root, machine.root / AGENT
    agent.mkdir(parents=True)
    former = load_kubeconfig(root / "etc/kubernetes/kubelet.conf")
    pieces = {"client-kubelet.crt": former.user.certificate, "client-kubelet.key": former.user.key}
    for name, piece in {**pieces, "server-ca.crt": former.cluster.authority}.items():
        (agent / name).write_bytes(piece.read())
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "local",
                "cluster": {
                    "server": former.cluster.server,
                    "certificate-authority": f"{agent}/server-ca.crt",
                },
            }
        ],
        "contexts": [
            {"name": "Default", "context": {"cluster": "local", "namespace": "default", "user": "user"}}
        ],
        "current-context": "Default",
        "preferences": {},
        "users": [
            {
                "name": "user",
                "user": {
                    "client-certificate": f"{agent}/client-kubelet.crt",
                    "client-key": f"{agent}/client-kubelet.key",
                },
            }
        ],
    }
    (agent / "kubelet.kubeconfig").write_text(yaml.safe_dump(document))
    (root / OF_K3S).parent.mkdir(parents=True)
    for folder in ("etc/kubernetes", "var/lib/kubelet", "var/lib/kube-proxy"):
        shutil.rmtree(root / folder)
    machine.kubelet_service, machine.kubelet_kubeconfig = K3S, f"{AGENT}/kubelet.kubeconfig"


def test_a_k3s_agent_gets_a_hub_and_loses_it(machine: Machine, real_cloud: RealCloud) -> None:
    lay_out_k3s(machine)
    services = ("--systemctl", str(machine.systemctl))
    with machine:
        real_cloud.admin.wait_for("/api/v1/nodes", machine.node, is_ready, timeout=LIMIT)
        shutil.copyfile(machine.root / machine.kubelet_kubeconfig, machine.root / OF_K3S)
        machine.kubelet_kubeconfig = OF_K3S  # kubelet-arg in config.yaml
        before = machine.files()
        flags = ("--kubelet-kubeconfig", f"/{OF_K3S}", "--kubelet-service", K3S)
        done = edgehub(machine, "install", *flags, *services, "--timeout", str(LIMIT), hub=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{machine.node} is behind its hub" in done.stdout
        assert f"restart {K3S}" in machine.called
        assert load_kubeconfig(machine.root / OF_K3S).cluster.server == machine.tls_url
        undone = edgehub(machine, "uninstall", *services)
        assert undone.returncode == 0, undone.stdout + undone.stderr
        assert machine.called.count(f"restart {K3S}") == 2
        assert machine.files() == before


def test_a_superedge_node_gets_a_hub_and_loses_it(
    machine: Machine, real_cloud: RealCloud, local: Link
) -> None:
    services = ("--systemctl", str(machine.systemctl))
    kubelet = machine.root / machine.kubelet_kubeconfig
    with machine:
        real_cloud.admin.wait_for("/api/v1/nodes", machine.node, is_ready, timeout=LIMIT)
        of_cloud = machine.root / "etc/kubernetes/cloud.conf"
        of_lite = f"https://{local.host}:{local.port}"
        of_cloud.write_text(kubelet.read_text().replace(of_lite, real_cloud.url))
        before = machine.files()
        flags = ("--kubeconfig", "/etc/kubernetes/cloud.conf")
        done = edgehub(machine, "install", *flags, *services, "--timeout", str(LIMIT), hub=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert load_kubeconfig(kubelet).cluster.server == machine.tls_url
        assert load_kubeconfig(machine.root / "etc/kubernetes/edgehub.conf").cluster.server == real_cloud.url
        local.refuse()
        well = edgehub(machine, "doctor", *services, hub=True)
        assert well.returncode == 0, well.stdout + well.stderr
        local.carry()
        undone = edgehub(machine, "uninstall", *services)
        assert undone.returncode == 0, undone.stdout + undone.stderr
        assert machine.files() == before
