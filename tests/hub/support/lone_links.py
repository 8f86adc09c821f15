"""A pool of hubs in front of a scriptable cloud, each with its own link that a test may cut, and with one peer port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.cloud.connect_proxy import ConnectProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.pki import Authority
from tests.cloud.ports import LOOPBACK, ReservedPort
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.process import SLACK, Hub
from tests.support.objects import obj

SERVER = "https://cloud.example:6443"
"""A name that only the proxy at the end of each link can resolve, so that all hubs have the same server."""
POOL = "islands"


def peer_flags(authority: Authority, folder: Path, node: str, address: str, port: int) -> tuple[str, ...]:
    """Return a hub's flags for its peer port in the pool, with a certificate."""
    certificate, key = authority.issue_server(f"system:node:{node}", [address]).write(folder, "peer")
    return (
        *("--pool", POOL, "--peer-port", str(port), "--peer-address", address),
        *("--peer-cert", str(certificate), "--peer-key", str(key)),
    )


def register(cloud: ScriptableCloud, node: str) -> None:
    user = f"system:node:{node}"
    cloud.access.certificates[user] = User(user, ("system:nodes",))
    cloud.store.create(obj("Node", node))


def enrol(cloud: ScriptableCloud, *nodes: str) -> None:
    """Set the pool's members to these nodes."""
    cloud.store.put(obj("NodePool", POOL, spec={"type": "Edge"}))
    cloud.store.update(obj("NodePool", POOL, status={"nodes": [*nodes]}), subresource="status")


def publish(cloud: ScriptableCloud, nodes: Mapping[str, str]) -> None:
    """Write the objects of manager and kubelets: the nodes, by name with address, and the pool that the first one
    leads."""
    for each in nodes:
        register(cloud, each)
    enrol(cloud, *nodes)
    leader, address = next(iter(nodes.items()))
    data = {
        "leaders": f"{leader}/{address}",
        "pool-scoped-metadata": "/v1/services",
        "interconnectivity": "true",
        "enable-leader-election": "true",
    }
    cloud.store.create(obj("ConfigMap", f"leader-hub-{POOL}", "kube-system", data=data))


class Member:
    """A node, its hub, and its link to the cloud."""

    def __init__(self, pool: LoneLinks, number: int, flags: tuple[str, ...] = ()) -> None:
        self.name = f"island-{number}"
        self.address = f"127.0.47.{number}"
        self.link = Link(LOOPBACK, pool.proxy.port)
        self.credential = pool.authority.issue_node(self.name)
        folder = pool.folder / self.name
        folder.mkdir()
        kubeconfig = write_kubeconfig(
            folder / "node.conf",
            SERVER,
            authority=pool.authority.certificate,
            credential=self.credential,
            more={"tls-server-name": LOOPBACK, "proxy-url": f"http://{LOOPBACK}:{self.link.port}"},
        )
        flags = (*peer_flags(pool.authority, folder, self.name, self.address, pool.port), *flags)
        self.hub = Hub(folder, SERVER, node=self.name, kubeconfig=kubeconfig, flags=flags)

    def pool_report(self) -> dict[str, Any]:
        found = self.hub.debug("pool")
        assert isinstance(found, dict)
        return found

    def via(self, node: str) -> bool:
        """Return the link to the cloud that the hub uses: `own`, `none`, or the name of a node."""
        return self.hub.metric("edgehub_link", via=node) == 1

    def close(self) -> None:
        self.hub.stop()
        self.link.close()


class LoneLinks:
    """The cloud, the proxy at the end of all links, and the members. The first member leads the pool."""

    def __init__(
        self, cloud: ScriptableCloud, proxy: ConnectProxy, authority: Authority, folder: Path
    ) -> None:
        self.cloud, self.proxy, self.authority, self.folder = cloud, proxy, authority, folder
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self.members: list[Member] = []

    def enrol(self, *names: str) -> None:
        enrol(self.cloud, *names)

    def prepare(self, flags: tuple[tuple[str, ...], ...]) -> None:
        self.members = [Member(self, number, each) for number, each in enumerate(flags, 1)]
        publish(self.cloud, {each.name: each.address for each in self.members})

    def start(self) -> None:
        for each in self.members:
            each.hub.launch()
        for each in self.members:
            each.hub.wait_until_ready()

    def close(self) -> None:
        for each in self.members:
            each.close()
        self._reserved.release()


@asynccontextmanager
async def lone_links(folder: Path, *flags: tuple[str, ...]) -> AsyncIterator[LoneLinks]:
    """Start a pool with one member for each entry of `flags`; all run and know each other."""
    authority = Authority()
    (folder / "ca.pem").write_bytes(authority.certificate)
    context = authority.server_context(folder, [LOOPBACK])
    async with AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(ScriptableCloud(tls=context))
        proxy = await stack.enter_async_context(ConnectProxy(int(cloud.url.rpartition(":")[2])))
        pool = LoneLinks(cloud, proxy, authority, folder)
        stack.push_async_callback(asyncio.to_thread, pool.close)
        await asyncio.to_thread(pool.prepare, flags)
        await asyncio.to_thread(pool.start)
        roles = ["leader", *("follower" for _ in pool.members[1:])]
        await until(
            lambda: [each.pool_report()["role"] for each in pool.members] == roles, "the pool has its roles"
        )
        for each in pool.members:
            await until(partial(_can_serve, each), f"{each.name} can serve")
        yield pool


def _can_serve(member: Member) -> bool:
    report = member.pool_report()
    return bool(report["canLead"] and report["members"])


async def until(check: Callable[[], object], what: str, patience: float = 3 * SLACK) -> None:
    """Poll until `check`, which queries a process, returns a true value; return it."""
    async with asyncio.timeout(patience):
        while not await asyncio.to_thread(_holds, check):  # noqa: ASYNC110 - another process cannot tell
            await asyncio.sleep(0.05)


def _holds(check: Callable[[], object]) -> bool:
    with contextlib.suppress(KeyError):
        return bool(check())
    return False
