"""The cloud of `scripts/demo`: one Service with endpoints in two node pools, embedded or in the real control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import yaml

from kube.json_type import Json
from tests.cloud.build import ensure_binaries
from tests.cloud.fixtures import HUB_NODES, HUB_RBAC
from tests.cloud.hollow import HollowKubelet, HollowProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import Hub

OBJECTS = Path(__file__).with_name("objects.yaml")
NODES = {"node-1": "harbour", "node-2": "airport"}
"""By node: the name of its pool."""


class Cluster(Protocol):
    """The demo's interface to its cloud."""

    url: str
    authorization: str
    """The Authorization header of the demo's writes."""

    def kubeconfig(self, node: str) -> Path: ...
    async def write(self, path: str, document: Json) -> None: ...
    def show_components(self, hub: Hub, say: Callable[[str], None]) -> None: ...


def slice_of_web() -> Json:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.{number}.0.1"],
                "nodeName": node,
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            for number, node in enumerate(NODES, 1)
        ],
    }


def objects() -> list[Json]:
    """Return Nodes, Services and a pod with complete fields, and the EndpointSlice of a Service with the nodes of both
    pools."""
    return [*yaml.safe_load(OBJECTS.read_text())["items"], slice_of_web()]


def managed(document: Json, manager: str = "demo") -> Json:
    """Add managedFields to a document, as the API server writes them for the client that created it."""
    parts: Json = {
        name: document[name] for name in ("spec", "data", "endpoints", "status") if name in document
    }
    named: Json = {
        name: value for name, value in document["metadata"].items() if name in ("labels", "annotations")
    }
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": document["apiVersion"],
        "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields({"metadata": named, **parts}),
    }
    return {**document, "metadata": {**document["metadata"], "managedFields": [entry]}}


def _fields(value: Json) -> Json:
    return {f"f:{name}": _fields(field) if isinstance(field, dict) else {} for name, field in value.items()}


def pools() -> list[Json]:
    """Return the NodePools. The real control plane here lacks their kind, so hubs use the nodes' labels there."""
    kind = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool"}
    return [{**kind, "metadata": {"name": pool}, "status": {"nodes": [node]}} for node, pool in NODES.items()]


class EmbeddedCluster:
    """The small API server of the tests, in this process. It allows every request."""

    authorization = ""

    def __init__(self, cloud: ScriptableCloud, folder: Path) -> None:
        self._cloud, self._folder = cloud, folder
        self.url = cloud.url
        for document in map(managed, [*objects(), *pools()]):
            cloud.store.create(document)
            if "status" in document:
                # The API server drops a status at creation: kubelet and controllers write it.
                cloud.store.update(document, subresource="status")

    def kubeconfig(self, node: str) -> Path:
        return write_kubeconfig(self._folder / f"{node}.kubeconfig", self.url)

    async def write(self, path: str, document: Json) -> None:
        self._cloud.store.create(managed({"apiVersion": "v1", "kind": "ConfigMap", **document}))

    def show_components(self, hub: Hub, say: Callable[[str], None]) -> None:
        raise NotImplementedError("real components need the real control plane")


class RealCluster:
    """etcd and kube-apiserver, with the RBAC that the product ships."""

    def __init__(self, cloud: RealCloud, folder: Path) -> None:
        self._cloud, self._folder = cloud, folder
        self.url = cloud.url
        for manifest in (HUB_RBAC, HUB_NODES):
            cloud.apply(manifest)
        # kubelet's status comes from a hollow kubelet, and no pod reports any.
        cloud.apply(
            {name: value for name, value in item.items() if name != "status"}
            for item in objects()
            if item["kind"] != "Pod"
        )
        cloud.admin.post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "demo"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "demo"}],
            },
        )
        self.authorization = f"Bearer {cloud.token('default', 'demo')}"

    def kubeconfig(self, node: str) -> Path:
        return self._cloud.node_kubeconfig(node)

    async def write(self, path: str, document: Json) -> None:
        await asyncio.to_thread(self._cloud.admin.post, path, document)

    def show_components(self, hub: Hub, say: Callable[[str], None]) -> None:
        """Run a hollow kubelet until it is Ready, and a hollow kube-proxy until it has read everything."""
        programs = ensure_binaries()
        kubeconfig = write_kubeconfig(self._folder / "component.kubeconfig", hub.url)
        with (
            HollowKubelet(hub.node, kubeconfig, self._folder, programs) as kubelet,
            HollowProxy(hub.node, kubeconfig, self._folder, programs) as proxy,
        ):
            kubelet.wait_ready(self._cloud.admin)
            say(f"   kubelet: {hub.node} is Ready")
            proxy.wait_synced()
            say("   kube-proxy: services and endpoint slices are synced")


@asynccontextmanager
async def embedded_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Start the embedded cloud, which needs no Go and is ready in milliseconds."""
    async with ScriptableCloud() as cloud:
        yield EmbeddedCluster(cloud, folder)


@asynccontextmanager
async def real_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Start the real control plane. Missing programs are built first, which takes minutes and prints progress."""
    programs = await asyncio.to_thread(ensure_binaries)
    cloud = RealCloud(folder / "cloud", programs)
    await asyncio.to_thread(cloud.start)
    try:
        yield await asyncio.to_thread(RealCluster, cloud, folder)
    finally:
        await asyncio.to_thread(cloud.stop)
