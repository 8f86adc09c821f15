"""A node: containerd, CNI plugins and kubelet, set up as a person does for kubeadm, and its join."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from scripts.node_machine.cloud import PORT, TOKEN
from scripts.node_machine.commands import until
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import CLOUD_ADDRESS, address, pods

SOCKET = "unix:///run/containerd/containerd.sock"
PROGRAMS = {
    **{
        name: f"/usr/bin/{name}"
        for name in ("kubelet", "kubeadm", "kubectl", "containerd", "containerd-shim-runc-v2", "ctr")
    },
    **{name: f"/opt/cni/bin/{name}" for name in ("bridge", "loopback", "host-local", "portmap")},
}
IMAGES = "/srv/images.tar"
"""The path on the node of the archive of its images."""
START_TIMEOUT = 60.0
CONTAINERD_CONFIGURATION = """\
version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{pause}'

[plugins.'io.containerd.cri.v1.runtime']
# Root of a machine that is a guest itself may not lower a score.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = {systemd_cgroup}
"""
CONTAINERD_UNIT = """\
[Unit]
Description=containerd
After=network.target

[Service]
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
KUBELET_UNIT = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target containerd.service

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
KUBECONFIG_ARGUMENTS = (
    "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
)
KUBEADM_DROP_IN = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS={arguments}"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
"""The drop-in of kubelet's unit in Kubernetes' packages."""


def programs(paths: Mapping[str, Path], archive: Path) -> dict[Path, list[str]]:
    """Return a node's programs and images: sources and target folders."""
    return {archive: [IMAGES], **{paths[name]: [target] for name, target in PROGRAMS.items()}}


def network_configuration(node: str) -> str:
    """Return the CNI configuration of a node's pods: a bridge. The instance routes the pods' addresses."""
    plugins = [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": pods(node)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                # A reboot assigns all addresses anew.
                "dataDir": "/run/cni/ipam",
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}, indent=2)


def join_configuration(node: str) -> str:
    """Return kubeadm's configuration for a join."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "JoinConfiguration",
            "discovery": {
                "bootstrapToken": {
                    "apiServerEndpoint": f"{CLOUD_ADDRESS}:{PORT}",
                    "token": TOKEN,
                    "unsafeSkipCAVerification": True,
                }
            },
            "nodeRegistration": {
                "name": node,
                "criSocket": SOCKET,
                "kubeletExtraArgs": [{"name": "node-ip", "value": address(node)}],
                # The kernel is the host's, and exposes neither modules nor its configuration.
                "ignorePreflightErrors": ["all"],
            },
        }
    )


def lay_out(node: Machine, pause: str, *, legacy_cgroups: bool) -> None:
    """Set up containerd, the network and kubelet, and import the images; kubelet waits for kubeadm."""
    systemd_cgroup = "false" if legacy_cgroups else "true"
    files = {
        "/etc/containerd/config.toml": CONTAINERD_CONFIGURATION.format(
            pause=pause, systemd_cgroup=systemd_cgroup
        ),
        "/etc/systemd/system/containerd.service": CONTAINERD_UNIT,
        "/etc/systemd/system/kubelet.service": KUBELET_UNIT,
        "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": KUBEADM_DROP_IN.format(
            arguments=KUBECONFIG_ARGUMENTS
        ),
        "/etc/cni/net.d/10-pods.conflist": network_configuration(node.name),
        "/etc/resolv.conf": f"nameserver {CLOUD_ADDRESS}\n",
        "/etc/hosts": f"127.0.0.1 localhost\n{address(node.name)} {node.name}\n",
        "/etc/kubeadm.yaml": join_configuration(node.name),
    }
    for path, text in files.items():
        node.write(path, text)
    node.run("systemctl", "daemon-reload")
    node.run("systemctl", "enable", "--now", "containerd")
    until("containerd answers", lambda: node.try_run("ctr", "version").returncode == 0, START_TIMEOUT)
    node.run("ctr", "--namespace=k8s.io", "images", "import", IMAGES)
    node.run("systemctl", "enable", "kubelet")


def join(node: Machine) -> None:
    """Join the node to the cluster by kubeadm."""
    node.run("kubeadm", "join", "--config=/etc/kubeadm.yaml")
