"""kubelet, kube-proxy and kubectl through an outage: real clients of the API, over a fake runtime."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cloud.hollow import HollowKubelet, is_ready
from tests.cloud.kube_proxy import KubeProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, bound
from tests.hub.support.objects import set_rules
from tests.hub.support.outage import STARTED, Outage

COMPONENTS = "hollow-kubelet,kubectl"


@pytest.fixture(autouse=True)
def cached(real_cloud: RealCloud) -> Iterator[None]:
    """Make the hub cache the reads of these components, under their names in this test."""
    set_rules(real_cloud, cache_agents=COMPONENTS)
    yield
    set_rules(real_cloud)


@pytest.fixture(autouse=True)
def ended(outage: Outage) -> Iterator[None]:
    """End the outage after each test."""
    yield
    outage.come_back()


@pytest.fixture(params=["plain", "TLS"])
def kubeconfig(request: pytest.FixtureRequest, outage: Outage, real_cloud: RealCloud, tmp_path: Path) -> Path:
    """Return the kubeconfig of components of the node: without credentials or, over TLS and so HTTP/2, with the node's
    certificate."""
    path, hub = tmp_path / "component.kubeconfig", outage.hub
    if request.param == "plain":
        return write_kubeconfig(path, hub.url)
    credential = real_cloud.authority.issue_node(hub.node)
    return write_kubeconfig(path, hub.tls_url, authority=hub.authority.read_bytes(), credential=credential)


def test_a_node_survives_an_outage_and_a_restart_of_its_kubelet(
    outage: Outage,
    real_cloud: RealCloud,
    cloud_programs: dict[str, Path],
    kubeconfig: Path,
    tmp_path: Path,
    namespace: str,
) -> None:
    def started(kubelet: HollowKubelet, pod: str) -> None:
        """Return when kubelet has mounted a pod's volumes and runs it."""
        for what in ("s", "c"):  # quotes are escaped in the log
            kubelet.process.wait_for_line(rf'MountVolume.SetUp succeeded for volume ."{what}."', STARTED)
        kubelet.process.wait_for_line('"Type":"ContainerStarted"', STARTED)

    def mounting(name: str, node: str) -> dict[str, Any]:
        """Return a pod that cannot start without a Secret and a ConfigMap."""
        volumes = [
            {"name": "s", "secret": {"secretName": "own"}},
            {"name": "c", "configMap": {"name": "own"}},
        ]
        mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
        container = {"name": "main", "image": "any", "volumeMounts": mounts}
        return {
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "containers": [container],
                "volumes": volumes,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 0,
            },
        }

    node, admin = outage.hub.node, real_cloud.admin
    core = f"/api/v1/namespaces/{namespace}"

    def prepare() -> None:
        admin.post(f"{core}/serviceaccounts", {"metadata": {"name": "default"}})
        admin.post(f"{core}/secrets", {"metadata": {"name": "own"}, "stringData": {"a": "b"}})
        admin.post(f"{core}/configmaps", {"metadata": {"name": "own"}, "data": {"a": "b"}})
        admin.post(f"{core}/pods", mounting("app", node))

    def begin() -> HollowKubelet:
        return HollowKubelet(node, kubeconfig, tmp_path, cloud_programs)

    prepare()
    mark = real_cloud.audit_mark()
    with KubeProxy(node, kubeconfig, tmp_path, cloud_programs) as proxy:
        with begin() as kubelet:
            kubelet.wait_ready(admin)
            proxy.wait_synced()
            admin.wait_for(f"{core}/pods", "app", is_running, timeout=STARTED)
            outage.leave()
        # Without the cloud a new kubelet finds its node, its pods and what they mount.
        with begin() as kubelet:
            for said in ('"Node was previously registered"', '"Successfully registered node"'):
                kubelet.process.wait_for_line(said, STARTED)
            started(kubelet, "app")
            outage.come_back()
            outage.hub.wait_for_metric("edgehub_journal_entries", 0, STARTED)
            found = admin.wait_for("/api/v1/nodes", node, is_ready, timeout=STARTED)
            assert found["metadata"]["name"] == node
            pod = admin.wait_for(f"{core}/pods", "app", is_running, timeout=STARTED)
            assert pod["status"]["phase"] == "Running"
        assert proxy.process.running
    lists = Counter(
        event.uri.partition("?")[0]
        for event in real_cloud.audit(mark)
        if event.stage == "RequestReceived" and event.verb == "list" and event.user == f"system:node:{node}"
    )
    # Lists at the start, after this outage, and maybe the previous test's; also names, to verify the history.
    assert not {path: times for path, times in lists.items() if times > 6}, "something lists in a loop"


def is_running(pod: Any) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


async def test_kubectl_gets_cached_responses_offline(
    outage: Outage, real_cloud: RealCloud, tmp_path: Path, namespace: str
) -> None:
    """kubectl uses its own token, on the TLS port."""
    core = f"/api/v1/namespaces/{namespace}"
    binding = bound("cluster-admin", account(namespace, "person"), name="person")
    token = await asyncio.to_thread(real_cloud.token, namespace, "person")
    await asyncio.to_thread(real_cloud.apply, [binding])
    authority = outage.hub.authority.read_bytes()
    kubeconfig = write_kubeconfig(
        tmp_path / "person.kubeconfig", outage.hub.tls_url, authority=authority, token=token
    )

    async def kubectl(*args: str, check: bool = True) -> Any:
        asked = (*args, "-n", namespace)
        return await asyncio.to_thread(real_cloud.kubectl, *asked, kubeconfig=kubeconfig, check=check)

    await asyncio.to_thread(
        real_cloud.admin.post, f"{core}/configmaps", {"metadata": {"name": "known"}, "data": {"a": "b"}}
    )
    asked = [("get", "configmaps"), ("get", "configmap", "known", "-o", "yaml"), ("get", "endpoints")]
    before = [(await kubectl(*args)).stdout for args in asked]
    assert "known" in before[0]
    async with outage.away():
        assert [(await kubectl(*args)).stdout for args in asked] == before
        refused = await kubectl("get", "pods", check=False)
        assert refused.returncode == 1
        assert "the cloud cannot be reached" in refused.stderr
        gone = await kubectl("delete", "configmap", "known", "--wait=false", check=False)
        assert "nothing is deleted" in gone.stderr
