"""Distributions are known by files of their shape, and what works there is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from addons.install.checks.distribution_checks import check_distribution
from addons.install.install_spec import KUBELET_KUBECONFIG

K3S = "var/lib/rancher/k3s/agent/kubelet.kubeconfig"


def laid(root: Path, *files: str, text: str = "") -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)


def said(root: Path, kubelet: Path = KUBELET_KUBECONFIG) -> str:
    return "\n".join(map(str, check_distribution(root, kubelet, KUBELET_KUBECONFIG)))


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (K3S, "warning  distribution k3s: its agent writes kubelet's kubeconfig anew"),
        ("var/lib/rancher/rke2/agent/kubelet.kubeconfig", "--kubelet-service rke2-agent.service"),
        ("var/snap/microk8s/current/credentials/kubelet.config", "snap.microk8s.daemon-kubelite.service"),
        ("var/lib/k0s/kubelet.conf", "--kubelet-service k0sworker.service"),
    ],
)
def test_each_is_known_by_kubelets_kubeconfig(tmp_path: Path, file: str, words: str) -> None:
    laid(tmp_path, file)
    assert words in said(tmp_path)
    assert "failed" not in said(tmp_path)


def test_who_names_kubelets_kubeconfig_is_not_told_what_to_name(tmp_path: Path) -> None:
    laid(tmp_path, K3S)
    copy = Path("/etc/rancher/k3s/edgehub-kubelet.kubeconfig")
    assert said(tmp_path, copy) == f"ok       distribution k3s, with kubelet's kubeconfig at {copy}"


def test_talos_takes_no_installation(tmp_path: Path) -> None:
    laid(tmp_path, "etc/os-release", text='NAME="Talos"\nID=talos\n')
    assert said(tmp_path).startswith("failed   distribution Talos")


def test_a_node_of_kubeadm_is_none_of_them(tmp_path: Path) -> None:
    laid(tmp_path, "etc/os-release", text="ID=debian\n")
    laid(tmp_path, "etc/kubernetes/kubelet.conf", K3S)
    assert said(tmp_path) == ""
