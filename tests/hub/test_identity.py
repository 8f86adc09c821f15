"""The identity that reaches the cloud, by listener, certificate and token, as reported by the cloud itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.hub.support.process import Hub
from tests.hub.support.streams import watching

LISTENS = "0A"
"""The state of a listening socket in the kernel's table."""


@pytest.fixture
def token(real_cloud: RealCloud) -> str:
    return real_cloud.token("default", "pod")


@pytest.fixture
def plain() -> Iterator[urllib3.PoolManager]:
    """Open a persistent connection to the plain port."""
    pool = urllib3.PoolManager(retries=False, maxsize=1, block=True)
    yield pool
    pool.clear()


def test_a_token_is_never_mixed_with_the_nodes_certificate(
    hub: Hub, plain: urllib3.PoolManager, token: str
) -> None:
    def user(answer: urllib3.BaseHTTPResponse) -> str:
        """Return the user of a request according to the cloud, "" if the cloud refused it."""
        if answer.status in {401, 403}:
            return ""
        assert answer.status == 201, answer.data
        name: str = answer.json()["status"]["userInfo"]["username"]
        return name

    who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})

    def ask(pool: urllib3.PoolManager, url: str, **headers: str) -> str:
        return user(
            pool.request(
                "POST", url + who, body=body, headers={"Content-Type": "application/json", **headers}
            )
        )

    pod = "system:serviceaccount:default:pod"
    seen = [ask(plain, hub.url, **headers) for headers in ({}, {"Authorization": f"Bearer {token}"}) * 3]
    assert seen == [f"system:node:{hub.node}", pod] * 3
    assert ask(plain, hub.url, Authorization="Bearer garbage") == ""
    assert ask(plain, hub.url) == f"system:node:{hub.node}"


async def test_the_hub_listens_only_on_its_configured_ports(hub: Hub) -> None:
    rows = await asyncio.to_thread(_sockets_of, hub.process.pid)
    listening = {local.partition(":")[2] for local, _, state in rows if state == LISTENS}
    assert listening == {f"{port:04X}" for port in (hub.port, hub.tls_port, hub.admin_port)}


async def test_the_hub_never_connects_to_itself(hub: Hub, plain: urllib3.PoolManager) -> None:
    """Checked while it serves a watch and a list of views, a relayed request, and its own responses."""
    all_slices = "/apis/discovery.k8s.io/v1/endpointslices"
    async with watching(hub.url, all_slices, component="kube-proxy", resourceVersion="0"):
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{hub.node}"
        for path in (f"{all_slices}?resourceVersion=0", "/version", f"/api/v1/nodes/{hub.node}", lease):
            headers = {"User-Agent": "kubelet/v1"}
            await asyncio.to_thread(plain.request, "GET", hub.url + path, headers=headers)
        rows = await asyncio.to_thread(_sockets_of, hub.process.pid)
    ends = {(local, remote) for local, remote, state in rows if state != LISTENS}
    assert len(ends) > 1, "those of the clients, and that to the cloud"
    assert not [each for each in ends if each[::-1] in ends]


def _sockets_of(pid: int) -> list[tuple[str, str, str]]:
    """Return both addresses, in hexadecimal, and the state of each TCP socket of a process, from the kernel's table."""
    found = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {each[len("socket:[") : -1] for each in found if each.startswith("socket:[")}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [(row[1], row[2], row[3]) for row in rows if row[9] in inodes]


@pytest.mark.parametrize(("signer", "is_pointed"), [("local", True), ("cluster", False)])
def test_kubelet_points_pods_at_the_hub_only_once_they_can_verify_it(
    real_cloud: RealCloud, node: str, tmp_path: Path, signer: str, is_pointed: bool
) -> None:
    """Here the certificate is never approved; the manager's tests cover the address after approval."""
    identity = real_cloud.node_kubeconfig(node)
    flags = ("--pod-address", "169.254.2.1", "--tls-signer", signer)
    with (
        Hub(tmp_path, real_cloud.url, node=node, kubeconfig=identity, flags=flags) as hub,
        RestClient(hub.url, user_agent="kubelet/v1.36.3 (linux/amd64)") as kubelet,
    ):
        services = kubelet.get("/api/v1/services", resourceVersion="0")["items"]
        (found,) = (each for each in services if each["metadata"]["name"] == "kubernetes")
        assert (found["spec"]["clusterIP"] == "169.254.2.1") is is_pointed
