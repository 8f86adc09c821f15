"""Real node components and kubectl through one hub."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from tests.cloud.hollow import HollowKubelet
from tests.cloud.kube_proxy import KubeProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, bound
from tests.hub.support.process import Hub


def through(hub: Hub, folder: Path) -> Path:
    """Return the kubeconfig of a component on the hub's node: no credentials, plain HTTP."""
    return write_kubeconfig(folder / "component.kubeconfig", hub.url)


def test_a_kubelet_becomes_ready_and_a_kube_proxy_synced(
    hub: Hub, real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path
) -> None:
    def asked(cloud: RealCloud, since: int, node: str) -> Counter[str]:
        """Return the number of lists of each path by the hub's identity since a mark."""
        return Counter(
            event.uri.partition("?")[0]
            for event in cloud.audit(since)
            if event.stage == "RequestReceived"
            and event.verb == "list"
            and event.user == f"system:node:{node}"
        )

    kubeconfig = through(hub, tmp_path)
    mark = real_cloud.audit_mark()
    with (
        HollowKubelet(hub.node, kubeconfig, tmp_path, cloud_programs) as kubelet,
        KubeProxy(hub.node, kubeconfig, tmp_path, cloud_programs) as proxy,
    ):
        kubelet.wait_ready(real_cloud.admin)
        proxy.wait_synced()
        # kubelet creates the lease ten seconds after the node: until then nothing may be listed twice.
        real_cloud.admin.wait_for(
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", hub.node, bool, timeout=30
        )
    often = {path: times for path, times in asked(real_cloud, mark, hub.node).items() if times > 2}
    assert not often, "something lists in a loop"


def test_kubectl_gets_applies_watches_waits_and_deletes(
    hub: Hub, real_cloud: RealCloud, tmp_path: Path
) -> None:
    def kubectl(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return real_cloud.kubectl(*args, stdin=stdin, kubeconfig=config)

    token = real_cloud.token("default", "operator")
    real_cloud.apply([bound("cluster-admin", account("default", "operator"), name="operator")])
    config = write_kubeconfig(
        tmp_path / "tls.kubeconfig", hub.tls_url, authority=hub.authority.read_bytes(), token=token
    )
    manifest = """
apiVersion: v1
kind: ConfigMap
metadata: {name: through-the-hub, namespace: default, labels: {test: kubectl}}
data: {step: "1"}
"""
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest).stdout
    assert "through-the-hub" in kubectl("get", "configmaps", "-l", "test=kubectl").stdout
    command = real_cloud.kubectl_command(
        *("get", "configmaps", "-l", "test=kubectl", "--watch", "--output-watch-events"), kubeconfig=config
    )
    watch = Process("kubectl-watch", command, tmp_path, {"HOME": str(tmp_path)})
    try:
        watch.wait_for_line("ADDED +through-the-hub", 10)
        assert "configured" in kubectl("apply", "-f", "-", stdin=manifest.replace('"1"', '"2"')).stdout
        watch.wait_for_line("MODIFIED +through-the-hub", 10)
        kubectl("wait", "configmap/through-the-hub", "--for=jsonpath={.data.step}=2", "--timeout=10s")
        assert "deleted" in kubectl("delete", "configmap", "through-the-hub").stdout
        watch.wait_for_line("DELETED +through-the-hub", 10)
    finally:
        watch.kill()
