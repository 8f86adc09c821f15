"""A hub on a link with delay, jitter and loss: it starts, it stays online, and clients' writes arrive."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.cloud.hollow import HollowKubelet, HollowProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub


def outages(hub: Hub) -> list[str]:
    return [line for line in hub.process.lines if "is down" in line]


@pytest.mark.parametrize("delay", [0.3, 1.0, 1.5])
async def test_a_hub_starts_over_any_link(linked: tuple[Hub, Link], delay: float) -> None:
    """At 0.3 s each way the hub once reported an outage, and with more delay it was never ready."""
    hub, link = linked
    link.carry(delay=delay, jitter=delay / 10)
    await asyncio.to_thread(hub.start)
    assert outages(hub) == []


SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: NAMESPACE}
spec: {ports: [{port: 80}]}
"""


@pytest.mark.since(36, "kubemark's kube-proxy of 1.33 ends with a fault of its own at the first Node")
@pytest.mark.timeout(400)
def test_components_start_over_a_satellite_link_and_survive_its_degradation(
    linked: tuple[Hub, Link],
    real_cloud: RealCloud,
    cloud_programs: dict[str, Path],
    namespace: str,
    tmp_path: Path,
) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

    def renewed(cloud: RealCloud, node: str) -> str:
        """Return when the node's lease was last renewed in the cloud."""
        return str(cloud.admin.get(f"{leases}/{node}")["spec"]["renewTime"])

    hub, link = linked
    link.carry(delay=0.9, jitter=0.2)
    hub.start()
    kubeconfig = write_kubeconfig(tmp_path / "component.kubeconfig", hub.url)
    rights = ("--clusterrole=cluster-admin", f"--serviceaccount={namespace}:operator")
    real_cloud.kubectl("create", "clusterrolebinding", f"operator-of-{namespace}", *rights)
    token = real_cloud.token(namespace, "operator")
    operator = write_kubeconfig(
        tmp_path / "operator.kubeconfig", hub.tls_url, authority=hub.authority.read_bytes(), token=token
    )
    # Seconds that a kubelet may take to become Ready on a satellite link: each of its steps takes several round trips.
    long = 120.0
    with (
        HollowKubelet(hub.node, kubeconfig, tmp_path, cloud_programs) as kubelet,
        HollowProxy(hub.node, kubeconfig, tmp_path, cloud_programs) as proxy,
    ):
        kubelet.wait_ready(real_cloud.admin, long)
        proxy.wait_synced(long)
        real_cloud.admin.wait_for(leases, hub.node, bool, timeout=long)
        for name, worse in (
            ("far", partial(link.carry, delay=1.45, jitter=0.1)),
            ("lossy", partial(link.carry, delay=0.1, jitter=0.1, loss=0.05)),
        ):
            link.carry(delay=0.025)
            known = len(proxy.process.lines)
            manifest = SERVICE.replace("NAMESPACE", namespace).replace("NAME", name)
            with ThreadPoolExecutor(1) as writer:
                create = partial(real_cloud.kubectl, "create", "-f", "-", kubeconfig=operator)
                written = writer.submit(create, stdin=manifest)
                worse()
                assert "created" in written.result().stdout
            proxy.process.wait_for_line("OnServiceAdd", long, after=known)
            before = renewed(real_cloud, hub.node)
            while renewed(real_cloud, hub.node) == before:
                time.sleep(0.5)
    assert outages(hub) == []
