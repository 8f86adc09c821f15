"""A relay in the cloud: every node reads shared resources from it as differences, and from the cloud if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import urllib3

from tests.cloud.pki import Credential
from tests.cloud.ports import ReservedPort
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule
from tests.hub.support.objects import endpoint_slice, set_rules, slices
from tests.hub.support.pool_site import SLICES
from tests.hub.support.process import Hub
from tests.hub.support.site import hub_before
from tests.hub.support.streams import listed, watching
from tests.support.polling import PATIENCE, eventually

ADDRESS = "127.0.34.1"
EDGE = "127.0.34.2"
NODE = "edge-relayed"


@dataclass(slots=True)
class Scene:
    """A relay, and the hub of a node without a pool that reads from it."""

    cloud: RealCloud
    relay: Hub
    edge: Hub
    url: str
    name: str

    def server(self) -> str:
        """Return the server from which the hub reads slices."""
        return next((each["server"] for each in self.edge.sources() if each["path"] == SLICES), "")

    def lists(self) -> int:
        return sum(int(each["lists"]) for each in self.edge.sources() if each["path"] == SLICES)

    def ask(self, credential: Credential | None, folder: Path, path: str = SLICES, **query: str) -> int:
        """Return the status of a request to the relay, with a client certificate or none."""
        files = credential.write(folder, "caller") if credential is not None else (None, None)
        names = {name: str(file) for name, file in zip(("cert_file", "key_file"), files, strict=True) if file}
        with urllib3.PoolManager(ca_certs=str(self.cloud.authority_file), retries=False, **names) as http:  # type: ignore[arg-type]  # urllib3 takes any pool's keywords
            return http.request("GET", self.url + path, fields=query, timeout=30.0).status


@pytest.fixture(scope="module")
def scene(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("relay")
    reserved = (
        ReservedPort()
    )  # reserved on 127.0.0.1 too, so that no other listener of the hub gets the peer port's number
    port = reserved.number
    authority = real_cloud.authority
    certificate, key = authority.issue_server("relay", [ADDRESS]).write(folder, "relay")
    url = f"https://{ADDRESS}:{port}"
    relay = Hub(
        *(folder / "relay", real_cloud.url),
        node="relay-1",
        kubeconfig=real_cloud.kubeconfig("relay", authority.issue_admin()),
        flags=(
            *("--mode", "cloud", "--peer-clients", "nodes"),
            *("--peer-address", ADDRESS, "--peer-port", str(port)),
            *("--peer-cert", str(certificate), "--peer-key", str(key)),
        ),
    )
    to_relay = ("--relay", url, "--peer-address", EDGE, "--peer-port", str(port))
    edge = hub_before(real_cloud, folder / "edge", NODE, *to_relay)
    try:
        relay.start()
        edge.start()
        yield Scene(real_cloud, relay, edge, url, f"relay {ADDRESS}:{port}")
    finally:
        edge.stop()
        relay.stop()
        reserved.release()


@pytest.fixture
async def running(scene: Scene) -> AsyncIterator[Scene]:
    """Return the scene with its relay accepting requests."""
    yield scene
    if not scene.relay.is_running:
        await asyncio.to_thread(scene.relay.start)


async def test_a_hub_reads_from_the_relay_and_from_the_cloud_without_it(running: Scene) -> None:
    """Nothing is listed again, and no event is lost or repeated."""
    scene, make = running, running.cloud.admin
    async with watching(scene.edge.url, SLICES, component="kube-proxy") as watch:
        await asyncio.to_thread(make.post, slices("default"), endpoint_slice("relayed-1", "web"))
        await watch.first("ADDED", "relayed-1")
        assert await asyncio.to_thread(scene.server) == scene.name
        lists = await asyncio.to_thread(scene.lists)

        await asyncio.to_thread(scene.relay.stop)
        await asyncio.to_thread(eventually, lambda: scene.server() == "cloud", "the hub reads from the cloud")
        await asyncio.to_thread(make.post, slices("default"), endpoint_slice("relayed-2", "web"))
        await watch.first("ADDED", "relayed-2")

        await asyncio.to_thread(scene.relay.start)
        back = partial(eventually, lambda: scene.server() == scene.name, "the hub is back at the relay")
        await asyncio.to_thread(back)
        await asyncio.to_thread(make.post, slices("default"), endpoint_slice("relayed-3", "web"))
        await watch.first("ADDED", "relayed-3")

        assert await asyncio.to_thread(scene.lists) == lists
        mine = [(each.type, each.name) for each in watch.seen if each.name.startswith("relayed-")]
        assert mine == [("ADDED", f"relayed-{number}") for number in (1, 2, 3)]


async def test_a_pod_reads_from_a_relay_with_the_permissions_of_its_token(
    running: Scene, namespace: str
) -> None:
    """The node itself may not read it at the cloud; only the relay may."""
    scene, policies = running, "/apis/networking.k8s.io/v1/networkpolicies"
    readers = [rule("networking.k8s.io", "networkpolicies", "list watch")]
    granted = rights("policies", readers, account(namespace, "plugin"))

    async def read(name: str) -> int:
        token = await asyncio.to_thread(scene.cloud.token, namespace, name)
        headers = {"Authorization": f"Bearer {token}"}
        try:
            url = scene.edge.tls_url
            await listed(url, policies, component="cached", headers=headers, resourceVersion="0")
        except AssertionError as error:
            return int(str(error)[:3])
        return 200

    def serves() -> bool:
        found = scene.edge.sources()
        return any((each["path"], each["server"]) == (policies, scene.name) for each in found)

    await asyncio.to_thread(scene.cloud.apply, granted)
    await asyncio.to_thread(
        set_rules, scene.cloud, cache_agents="cached", pool_resources="networking.k8s.io/v1/networkpolicies"
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while await read("plugin") != 200:  # the rules are not known yet
                pass
        await asyncio.to_thread(eventually, serves, "the hub reads it from the relay")
        assert (await read("plugin"), await read("stranger")) == (200, 403)
    finally:
        await asyncio.to_thread(set_rules, scene.cloud)


def test_the_relay_serves_each_node_and_refuses_any_other_client(scene: Scene, tmp_path: Path) -> None:
    node = scene.cloud.authority.issue_node("any-node")
    assert scene.ask(node, tmp_path, resourceVersion="0") == 200
    assert scene.ask(None, tmp_path) == 401
    assert (
        scene.ask(scene.cloud.authority.issue_client("somebody", ["system:authenticated"]), tmp_path) == 403
    )
    assert scene.ask(node, tmp_path, "/api/v1/pods") == 403
    assert scene.ask(node, tmp_path, "/version") == 404, "a relay stores no answers"
