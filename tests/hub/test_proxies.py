"""A hub whose cloud is behind a proxy: its own requests, and relayed ones over either HTTP version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
import yaml

from addons.ui.commands.shell import run
from tests.cloud.connect_proxy import ConnectProxy
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.http2 import Streams
from tests.hub.support.process import Hub, started
from tests.hub.support.streams import listed, watching

SERVER = "https://cloud.example:6443"
"""A name that only the proxies can resolve."""


def proxied(kubeconfig: Path, proxy_url: str, name: str) -> Path:
    """Copy a kubeconfig whose cluster is reached through a proxy; `name` is in the server's certificate."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    cluster |= {"tls-server-name": name} | ({"proxy-url": proxy_url} if proxy_url else {})
    made = kubeconfig.with_name("proxied.conf")
    made.write_text(yaml.safe_dump(document))
    return made


def kubeconfig_of(authority: Authority, folder: Path) -> Path:
    credential = authority.issue_node("node-1")
    return write_kubeconfig(
        folder / "node.conf", SERVER, authority=authority.certificate, credential=credential
    )


@pytest.mark.parametrize("by", ["kubeconfig", "environment", "https"])
async def test_all_connections_to_the_cloud_use_the_proxy(tmp_path: Path, by: str) -> None:
    authority = Authority()
    kubeconfig = kubeconfig_of(authority, tmp_path)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    context = authority.server_context(tmp_path, ["127.0.0.1"])
    services = "/api/v1/services"
    basic = "Basic dTpwdw=="
    async with (
        ScriptableCloud(tls=context) as cloud,
        ConnectProxy(
            int(cloud.url.rpartition(":")[2]), authorization=basic, tls=context if by == "https" else None
        ) as proxy,
    ):
        cloud.access.certificates["system:node:node-1"] = User("system:node:node-1")
        cloud.store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}})
        url = proxy.url.replace("://", "://u:pw@")
        kubeconfig = proxied(kubeconfig, "" if by == "environment" else url, "127.0.0.1")
        env = {"HTTPS_PROXY": url} if by == "environment" else {}
        env |= {"SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        async with started(Hub(tmp_path, SERVER, kubeconfig=kubeconfig, env=env)) as hub:
            async with watching(hub.url, services, component="kube-proxy") as events:
                await events.first("ADDED", "web")
            # Watches stay on their connections, so the first request may open a new one.
            await listed(hub.url, services, component="kubectl")
            before = len(proxy.asked)
            assert list(await listed(hub.url, services, component="kubectl")) == ["web"]
            assert len(proxy.asked) == before, "a relayed request goes by the hub's own connection"
            assert {each.split("\r\n")[0] for each in proxy.asked} == {"CONNECT cloud.example:6443 HTTP/1.1"}
            assert "pw" not in "".join(hub.process.lines)


async def test_an_http2_relay_through_a_proxy_streams_and_ends_with_the_cloud(
    real_cloud: RealCloud, namespace: str, node: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(real_cloud.apply, HUB_RBAC)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(4):
        body = {"metadata": {"name": f"large-{number}"}, "data": {"x": "y" * 500_000}}
        await asyncio.to_thread(real_cloud.admin.post, path, body)
    token = await asyncio.to_thread(real_cloud.token, namespace, "pod")
    readers = [rule("", "configmaps", "list watch")]
    granted = rights("all", readers, account(namespace, "pod"), namespace=namespace)
    await asyncio.to_thread(real_cloud.apply, granted)
    async with ConnectProxy(real_cloud.port) as proxy:
        kubeconfig = proxied(real_cloud.node_kubeconfig(node), proxy.url, real_cloud.host)
        async with started(
            Hub(tmp_path, SERVER, node=node, kubeconfig=kubeconfig, flags=("--allow-drills",))
        ) as hub:
            streams = await Streams.open(hub.tls_port, str(hub.authority))
            headers = {"authorization": f"Bearer {token}"}
            complete = streams.get(path, headers)
            watch = streams.get(f"{path}?watch=true", headers)
            await streams.until(lambda: {complete, watch} <= streams.status.keys())
            assert streams.status == {complete: 200, watch: 200}
            await streams.until(lambda: complete in streams.ended and streams.received[watch] > 2_000_000)
            assert streams.received[complete] > 2_000_000, "more than a window of HTTP/2"
            assert await asyncio.to_thread(run, ["link", "offline", "--admin", hub.admin_url]) == 0
            await streams.until(lambda: watch in streams.ended)
            await streams.close()


async def test_a_refusing_proxy_is_reported_as_an_outage(tmp_path: Path) -> None:
    kubeconfig = kubeconfig_of(Authority(), tmp_path)
    async with ConnectProxy(1, answer=b"HTTP/1.1 403 Forbidden\r\n\r\n") as proxy:
        hub = Hub(tmp_path, SERVER, kubeconfig=proxied(kubeconfig, proxy.url, "127.0.0.1"))
        async with started(hub, ready=False):
            await asyncio.to_thread(
                hub.process.wait_for_line, r"is down \(the proxy .* refuses: 403 Forbidden\)", 30
            )
            async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/version") as answer:
                assert answer.status == 503
