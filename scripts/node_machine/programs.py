"""The programs of a node and its cloud that the test control plane lacks: how they are built, once per user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cloud import build
from tests.cloud.build import Recipe

MODULES = Path(build.__file__).parent / "node"
CONTAINERD_PACKAGES = "github.com/containerd/containerd/v2/cmd"
PLUGIN_PACKAGES = "github.com/containernetworking/plugins/plugins"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-proxy")
"""The programs of the test control plane that a cloud runs."""


def stamped(module: str, variable: str, prefix: str = "") -> Callable[[str], tuple[str, ...]]:
    """Return the linker flags that write a module's version into the program."""
    return lambda go_mod: build.stamped([f"{variable}={prefix}{build.required_version(go_mod, module)}"])


KUBERNETES = Recipe(
    MODULES / "kubernetes",
    {
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        "kubeadm": "k8s.io/kubernetes/cmd/kubeadm",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "agnhost": "k8s.io/kubernetes/test/images/agnhost",
        "pause": "./pause",
    },
    "k8s.io/kubernetes",
    build.build_flags,
    sources=(MODULES / "kubernetes" / "pause" / "main.go",),
)
CONTAINERD = Recipe(
    MODULES / "containerd",
    {name: f"{CONTAINERD_PACKAGES}/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
    "github.com/containerd/containerd/v2",
    stamped("github.com/containerd/containerd/v2", "github.com/containerd/containerd/v2/version.Version"),
)
PLUGINS = Recipe(
    MODULES / "plugins",
    {
        path.rpartition("/")[2]: f"{PLUGIN_PACKAGES}/{path}"
        for path in ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")
    },
    "github.com/containernetworking/plugins",
    stamped(
        "github.com/containernetworking/plugins",
        "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
    ),
)
COREDNS = Recipe(
    MODULES / "coredns",
    {"coredns": "."},
    "github.com/coredns/coredns",
    stamped("github.com/coredns/coredns", "github.com/coredns/coredns/coremain.GitCommit"),
    sources=(MODULES / "coredns" / "main.go",),
)


def ensure_programs() -> dict[str, Path]:
    """Return the paths of all programs, by name; build the missing ones. Raises BuildError."""
    found = build.ensure_binaries(CONTROL_PLANE)
    for recipe in (KUBERNETES, CONTAINERD, PLUGINS, COREDNS):
        found |= build.ensure_binaries(recipe=recipe)
    return found


def kubernetes_version() -> str:
    """Return the Kubernetes version of node and cloud, such as `v1.36.3`."""
    return build.required_version(KUBERNETES.go_mod)
