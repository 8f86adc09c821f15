"""The cloud of an instance: a control plane laid out by kubeadm, as systemd units, and the join of nodes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from kube.json_type import Json
from scripts.node_machine.commands import FailedError, until
from scripts.node_machine.instances import CLOUD
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import CLOUD_ADDRESS, POD_RANGE
from scripts.node_machine.programs import kubernetes_version
from tests.cloud.rest import is_true

PORT = 6443
TOKEN = "abcdef.0123456789abcdef"  # noqa: S105 - of a cluster that nobody reaches
KUBECONFIG = "/etc/kubernetes/super-admin.conf"
ADMIN = "/etc/kubernetes/admin.conf"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
READY_TIMEOUT = 180.0
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl")
UNIT = """\
[Unit]
Description={name}
StartLimitIntervalSec=0

[Service]
ExecStart={command}
Restart=always
RestartSec=1
# An API server that is slow to end keeps its port.
TimeoutStopSec=10

[Install]
WantedBy=multi-user.target
"""
FASTER = {"etcd": ["--unsafe-no-fsync"]}
"""Flags in addition to kubeadm's: a test's disk need not survive a power failure."""


def programs(paths: Mapping[str, Path]) -> dict[Path, list[str]]:
    """Return the cloud's programs: sources and target folders."""
    return {paths[name]: [f"/usr/bin/{name}"] for name in PROGRAMS}


def configuration(*, legacy_cgroups: bool) -> str:
    """Return kubeadm's configuration of the cluster."""
    documents: list[Json] = [
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "bootstrapTokens": [
                {
                    "token": TOKEN,
                    "ttl": "0s",
                    "usages": ["signing", "authentication"],
                    "groups": ["system:bootstrappers:kubeadm:default-node-token"],
                }
            ],
            "localAPIEndpoint": {"advertiseAddress": CLOUD_ADDRESS, "bindPort": PORT},
            "nodeRegistration": {"name": CLOUD, "criSocket": "unix:///run/containerd/containerd.sock"},
        },
        {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": kubernetes_version(),
            "controlPlaneEndpoint": f"{CLOUD_ADDRESS}:{PORT}",
            "encryptionAlgorithm": "ECDSA-P256",
            "networking": {"podSubnet": POD_RANGE},
            "apiServer": {
                # No kube-proxy runs where the API server does: it asks a Service's endpoints.
                "extraArgs": [{"name": "enable-aggregator-routing", "value": "true"}]
            },
            "controllerManager": {"extraArgs": [{"name": "allocate-node-cidrs", "value": "false"}]},
            "proxy": {},
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs" if legacy_cgroups else "systemd",
            "failCgroupV1": False,
            "failSwapOn": False,
            "resolvConf": "/etc/resolv.conf",
            # The machine's disk is shared with all that runs on it.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
        },
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clusterCIDR": POD_RANGE,
            # Connection tracking has one table for the whole machine, which is not the node's to size.
            "conntrack": {"maxPerCore": 0},
        },
    ]
    return yaml.safe_dump_all(documents)


def lay_out(cloud: Machine, *, legacy_cgroups: bool) -> None:
    """Write certificates, kubeconfigs and manifests with kubeadm, and start the control plane from them."""
    cloud.write("/etc/kubeadm.yaml", configuration(legacy_cgroups=legacy_cgroups))
    _kubeadm(cloud, "certs", "all")
    _kubeadm(cloud, "kubeconfig", "all")
    _kubeadm(cloud, "etcd", "local")
    _kubeadm(cloud, "control-plane", "all")
    for name in COMPONENTS:
        manifest = yaml.safe_load(cloud.run("cat", f"/etc/kubernetes/manifests/{name}.yaml"))
        cloud.write(
            f"/etc/systemd/system/{name}.service",
            UNIT.format(name=name, command=shlex.join(command(manifest))),
        )
    cloud.run("systemctl", "daemon-reload")
    cloud.run("systemctl", "enable", "--now", *COMPONENTS)
    until("kube-apiserver is ready", lambda: is_ready(cloud), READY_TIMEOUT)
    kubectl(
        cloud,
        "create",
        "clusterrolebinding",
        "kubeadm:cluster-admins",
        "--clusterrole=cluster-admin",
        "--group=kubeadm:cluster-admins",
    )
    for phase in (("upload-config", "all"), ("bootstrap-token",), ("addon", "all")):
        _kubeadm(cloud, *phase)


def command(manifest: Json) -> list[str]:
    """Return the command line of the container in a manifest of kubeadm."""
    own: list[str] = manifest["spec"]["containers"][0]["command"]
    return [f"/usr/bin/{own[0]}", *own[1:], *FASTER.get(own[0], [])]


def is_ready(cloud: Machine) -> bool:
    """Whether kube-apiserver reports that it is ready."""
    return cloud.try_run("kubectl", f"--kubeconfig={KUBECONFIG}", "get", "--raw=/readyz").returncode == 0


def kubectl(cloud: Machine, *arguments: str, stdin: str = "") -> str:
    """Run kubectl at the cloud, as an administrator."""
    return cloud.run("kubectl", f"--kubeconfig={KUBECONFIG}", *arguments, stdin=stdin)


def wait_until_ready(cloud: Machine, nodes: Sequence[str]) -> None:
    """Wait until these nodes, and all pods of the cluster, are Ready."""
    try:
        for node in nodes:
            # kubeadm may be through with a join before kubelet has registered the node.
            for state in ("create", "condition=Ready"):
                kubectl(cloud, "wait", f"--timeout={READY_TIMEOUT:.0f}s", f"--for={state}", f"node/{node}")
        until("all pods are ready", lambda: pods_are_ready(cloud), READY_TIMEOUT, interval=0.5)
    except FailedError as error:
        shown = cloud.try_run(
            "kubectl", f"--kubeconfig={KUBECONFIG}", "get", "pods,nodes", "-A", "-o", "wide"
        )
        raise FailedError(f"{error}\n{shown.stdout}") from error


def pods_are_ready(cloud: Machine) -> bool:
    """Whether pods exist, and each is ready."""
    pods = json.loads(kubectl(cloud, "get", "pods", "--all-namespaces", "--output=json"))["items"]
    return bool(pods) and all(is_true(pod, condition="Ready") for pod in pods)


def _kubeadm(cloud: Machine, *phase: str) -> None:
    # The phases that speak to the cluster take the kubeconfig; the others do not know the flag.
    speaks = phase[0] in {"upload-config", "bootstrap-token", "addon"}
    more = (f"--kubeconfig={KUBECONFIG}",) if speaks else ()
    cloud.run("kubeadm", "init", "phase", *phase, "--config=/etc/kubeadm.yaml", *more)
