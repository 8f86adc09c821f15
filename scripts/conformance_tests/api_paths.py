"""The paths to the API: directly to kube-apiserver, and through a hub in each mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cloud.fixtures import HUB_NODES, HUB_RBAC
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

MODES = ("relay", "cached", "plain", "filtered")
NODE = "node-1"
NO_CERTIFICATES = "TLS ends at the hub: what a client proves by its certificate does not reach the cloud"
NO_VERSIONS = "its objects have no resourceVersion, by which a view would hold them"
FORBIDDEN: dict[str, tuple[tuple[str, ...], str]] = {
    "[sig-auth] Certificates API [Privileged:ClusterAdmin] should support building a client with a CSR": (
        MODES,
        NO_CERTIFICATES,
    ),
    "[sig-cli] Kubectl client Kubectl get componentstatuses should get componentstatuses": (
        ("filtered",),
        NO_VERSIONS,
    ),
}
"""Specs that cannot pass in some modes: the modes and the reason. A listed spec that passes is reported as an error."""

KEEP = """
from addons.filters.verdict import kept


class KeepAll:
    name = "conformance-keep"
    resources = frozenset({resources})
    components = frozenset({{"*"}})
    verbs = frozenset({{"get", "list", "watch"}})
    reasons = frozenset({{"kept"}})
    protobuf = True

    def apply(self, obj, inputs, note):
        return kept("kept")


FILTERS = (KeepAll(),)
"""
"""The source of a filter module that supports `resources` and keeps every object unchanged."""


def add_node(cloud: RealCloud) -> None:
    """Create a ready node without pods. Some specs name a node in the objects that they write."""
    cloud.admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    cloud.admin.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})
    cloud.admin.patch(f"/api/v1/nodes/{NODE}", {"spec": {"taints": None}})


@contextmanager
def through_hub(cloud: RealCloud, mode: str, folder: Path) -> Iterator[Path]:
    """Run a hub; yield the kubeconfig of an administrator who uses it."""
    folder.mkdir(parents=True)
    for manifest in (HUB_RBAC, HUB_NODES):
        cloud.apply(manifest)
    rules = {"metadata": {"name": "yurt-hub-cfg"}, "data": {"cache_agents": "" if mode == "relay" else "*"}}
    cloud.admin.post("/api/v1/namespaces/kube-system/configmaps", rules)
    flags: tuple[str, ...] = ()
    if mode == "filtered":
        file = folder / "keep.py"
        file.write_text(KEEP.format(resources=sorted(_listable(cloud))))
        flags = ("--filter-module", str(file))
    # A user with a token has 64 sources at most, and beyond them is refused what is filtered.
    is_plain = mode in ("plain", "filtered")
    identity = cloud.admin_kubeconfig() if is_plain else cloud.node_kubeconfig(NODE)
    with Hub(folder, cloud.url, node=NODE, kubeconfig=identity, flags=flags) as hub:
        if is_plain:
            yield write_kubeconfig(folder / "kubeconfig", hub.url)
            return
        authority, token = hub.authority.read_bytes(), _admin_token(cloud)
        yield write_kubeconfig(folder / "kubeconfig", hub.tls_url, authority=authority, token=token)


def _admin_token(cloud: RealCloud) -> str:
    """Create a token with all rights, for clients of the TLS port."""
    binding = {
        "metadata": {"name": "conformance"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "conformance", "namespace": "kube-system"}],
    }
    cloud.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    return cloud.token("kube-system", "conformance", seconds=24 * 3600)


def _listable(cloud: RealCloud) -> set[tuple[str, str]]:
    """Return (group, resource) of everything that the cloud can list."""
    versions = [
        (group["name"], f"/apis/{version['groupVersion']}")
        for group in cloud.admin.get("/apis")["groups"]
        for version in group["versions"]
    ]
    return {
        (group, resource["name"])
        for group, path in [("", "/api/v1"), *versions]
        for resource in cloud.admin.get(path)["resources"]
        if "list" in resource["verbs"]
    }
