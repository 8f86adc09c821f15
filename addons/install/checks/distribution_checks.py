"""Which distribution of Kubernetes a node is of, where kubelet is another than kubeadm's, and what works there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from addons.install.changes import below
from addons.install.checks.findings import Finding, failed, ok, warning


@dataclass(frozen=True, slots=True)
class Distribution:
    """One distribution: the file by which a node of it is known, and what to do in place of `edgehub install` alone."""

    name: str
    sign: Path
    works: str


OF_RANCHER = (
    "its agent writes kubelet's kubeconfig anew at each start: copy {sign} to "
    "/etc/rancher/{name}/edgehub-kubelet.kubeconfig, name the copy in /etc/rancher/{name}/config.yaml "
    "(kubelet-arg: [kubeconfig=…]), and install with --kubelet-kubeconfig COPY --kubelet-service {name}-agent.service; "
    "the agent itself starts only while its server answers"
)


def _of_rancher(title: str, name: str) -> Distribution:
    sign = Path(f"/var/lib/rancher/{name}/agent/kubelet.kubeconfig")
    return Distribution(title, sign, OF_RANCHER.format(sign=sign, name=name))


DISTRIBUTIONS = (
    _of_rancher("k3s", "k3s"),
    _of_rancher("RKE2", "rke2"),
    Distribution(
        "MicroK8s",
        Path("/var/snap/microk8s/current/credentials/kubelet.config"),
        "install with --kubelet-kubeconfig /var/snap/microk8s/current/credentials/kubelet.config --kubelet-service "
        "snap.microk8s.daemon-kubelite.service on a node that joined with --worker; a refresh of the snap may write "
        "the file anew",
    ),
    Distribution(
        "k0s",
        Path("/var/lib/k0s/kubelet.conf"),
        "install with --kubelet-kubeconfig /var/lib/k0s/kubelet.conf --kubelet-service k0sworker.service on a worker",
    ),
)
TALOS = "ID=talos"
"""The line of /etc/os-release. Talos has no systemd for others, no shell, and kubelet's files are its own."""
RELEASE = Path("/etc/os-release")


def check_distribution(root: Path, kubelet: Path, default: Path) -> Iterator[Finding]:
    """What the node's files say of its distribution; nothing where they are those of kubeadm.

    `kubelet` is the kubeconfig of kubelet that was named, `default` the one of kubeadm.
    """
    release = below(root, RELEASE)
    if release.exists() and TALOS in release.read_text(errors="replace").splitlines():
        yield failed(
            "distribution",
            "Talos keeps kubelet's files to itself: run hubs as the chart's DaemonSet (hub.enabled), for pods, and "
            "leave kubelet with the cloud",
        )
        return
    for distribution in DISTRIBUTIONS:
        if not below(root, distribution.sign).exists():
            continue
        if kubelet != default:
            yield ok("distribution", f"{distribution.name}, with kubelet's kubeconfig at {kubelet}")
        elif not below(root, default).exists():
            yield warning("distribution", f"{distribution.name}: {distribution.works} (docs/install.md)")
