"""The node's certificate is renewed under load, with a cloud that refuses expired ones."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.pki import LIFETIME, Credential
from tests.cloud.real import RealCloud
from tests.hub.support.load import Load
from tests.hub.support.process import Hub
from tests.hub.support.streams import watching

SHORT = timedelta(seconds=30)
"""The validity of the certificate that expires under load; a busy machine may take half of it to replace the
certificate."""
KUBERNETES = "/api/v1/namespaces/default/services/kubernetes"


class NodeFiles:
    """A kubeconfig like kubeadm's, with a link to the file with the current certificate and key."""

    def __init__(self, folder: Path, cloud: RealCloud) -> None:
        self._folder = folder
        self._count = 0
        self.current = folder / "kubelet-client-current.pem"
        self.kubeconfig = folder / "kubelet.conf"
        user = {"client-certificate": str(self.current), "client-key": str(self.current)}
        cluster = {"server": cloud.url, "certificate-authority": str(cloud.authority_file)}
        document = {
            "clusters": [{"name": "cloud", "cluster": cluster}],
            "users": [{"name": "node", "user": user}],
            "contexts": [{"name": "node", "context": {"cluster": "cloud", "user": "node"}}],
            "current-context": "node",
        }
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def rotate(self, issued: Credential) -> None:
        """Renew the certificate like kubelet: write a file with a new name, and point the link at it."""
        self._count += 1
        file, link = self._folder / f"kubelet-client-{self._count}.pem", self._folder / "new"
        file.write_bytes(issued.certificate + issued.key)
        link.symlink_to(file)
        os.replace(link, self.current)

    def tear(self, issued: Credential, former: Credential) -> None:
        """Write a certificate without its key."""
        self.rotate(Credential(issued.certificate, former.key))


@pytest.fixture
def files(real_cloud: RealCloud, tmp_path: Path, node: str) -> NodeFiles:
    made = NodeFiles(tmp_path, real_cloud)
    made.rotate(real_cloud.authority.issue_node(node))
    return made


@pytest.fixture
def hub(real_cloud: RealCloud, tmp_path: Path, node: str, files: NodeFiles) -> Iterator[Hub]:
    real_cloud.apply(HUB_RBAC)
    with Hub(tmp_path, real_cloud.url, node=node, kubeconfig=files.kubeconfig) as made:
        yield made


async def test_a_certificate_is_renewed_under_load(
    hub: Hub, real_cloud: RealCloud, files: NodeFiles, namespace: str
) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    authority = real_cloud.authority
    load = Load(hub.url, KUBERNETES, "kubelet", clients=4)
    loading = [asyncio.create_task(load.run())]
    expiry = "edgehub_certificate_expiry_seconds"
    try:
        await load.answers(20)
        short = authority.issue_node(hub.node, SHORT)
        ends = time.monotonic() + SHORT.total_seconds() + 1
        files.tear(short, authority.issue_node(hub.node))
        await load.answers(20)
        assert hub.metric(expiry, use="client") > SHORT.total_seconds(), "the former is in use"
        files.rotate(short)
        # These connections always present the short-lived certificate.
        loading.append(asyncio.create_task(load.run()))
        async with watching(hub.url, services, component="kubectl") as events:
            await load.answers(40)
            assert hub.metric(expiry, use="client") < SHORT.total_seconds(), "the new one is in use"
            files.rotate(authority.issue_node(hub.node))
            await load.answers(40)
            assert hub.metric(expiry, use="client") > LIFETIME.total_seconds() / 2
            await asyncio.sleep(max(0.0, ends - time.monotonic()))
            await load.answers(40)
            made = {"metadata": {"name": "late"}, "spec": {"ports": [{"port": 80}]}}
            await asyncio.to_thread(real_cloud.admin.post, services, made)
            await events.first("ADDED", "late")
        assert set(load.ends) == {"200"}, load.ends
    finally:
        for each in loading:
            each.cancel()
        await asyncio.gather(*loading, return_exceptions=True)


async def test_an_expired_identity_counts_as_an_outage(
    hub: Hub, real_cloud: RealCloud, files: NodeFiles, namespace: str
) -> None:
    """Every response was once 401, also for objects with a copy on the node, while /readyz was 200."""
    services, node = f"/api/v1/namespaces/{namespace}/services?resourceVersion=0", f"/api/v1/nodes/{hub.node}"
    headers = {"User-Agent": "kubelet/v1"}
    async with aiohttp.ClientSession(hub.url, headers=headers) as session:

        async def code(path: str) -> int:
            async with session.get(path) as answer:
                assert answer.status != 503 or "Retry-After" in answer.headers
                return answer.status

        assert (await code(services), await code(node)) == (200, 404)
        files.rotate(real_cloud.authority.issue_node(hub.node, timedelta(seconds=1)))
        await hub.logged("does not accept the node's identity")
        assert (await code(services), await code("/api/v1/namespaces/default/configmaps/never")) == (200, 503)
        async with session.get(f"{hub.admin_url}/readyz") as answer:
            assert answer.status == 503
            assert "identity" in await answer.text()
        files.rotate(real_cloud.authority.issue_node(hub.node))
        await hub.logged("[0-9] accepts the node's identity")
        assert await code(KUBERNETES) == 200
