"""Three nodes in separate networks, each with a link to the cloud and one to the other nodes: `… three_networks
FOLDER`. Runs as root of a new user and network namespace (`unshare --map-root-user --net`), which is the cloud's
network and the router between the nodes. Cuts the link of one node in each way, and prints whose link the node then
uses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import urllib3

from tests.cloud.connect_proxy import pump
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.ports import LOOPBACK
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.lone_links import peer_flags, publish
from tests.hub.support.process import Hub
from tests.hub.support.streams import executed
from tests.support.objects import obj

CLOUD, PORT, PEER_PORT = "10.0.0.1", 6443, 10269
PATIENCE = 60.0
EACH, LOOK = 0.25, 0.02
"""Seconds between renewals of a lease, and between reads of it."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
CUTS = {
    "refusing": (f"ip route replace unreachable {CLOUD}", f"ip route replace {CLOUD} via {{router}}"),
    "a black hole": (
        "ip neigh replace {router} lladdr 02:00:00:00:00:99 dev wan nud permanent",
        "ip neigh del {router} dev wan",
    ),
    "a firewall behind the handshake": (
        "tc qdisc add dev wan root tbf rate 100mbit burst 150 latency 50ms mtu 150",
        "tc qdisc del dev wan root",
    ),
}
"""The commands that break the node's own link, and repair it. The bucket drops packets larger than TCP's handshake."""


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


class Network:
    """A thread in a node's network namespace, and the node's hub, which it starts."""

    hub: Hub

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread = ThreadPoolExecutor(1, initializer=os.unshare, initargs=(os.CLONE_NEWNET,))
        self._tid = self.do(threading.get_native_id)

    def do[T](self, what: Callable[[], T]) -> T:
        """Call a function in the node's network."""
        return self._thread.submit(what).result()

    def run(self, command: str) -> None:
        self.do(partial(run, command))

    def connect(self, outer: str, inner: str, net: str) -> None:
        """Add a link to the router, which has address .1 in the net, and the node .2."""
        run(f"ip link add {outer} type veth peer name {inner} netns {self._tid}")
        run(f"ip addr add {net}.1/24 dev {outer}")
        run(f"ip link set {outer} up")
        self.run(f"ip addr add {net}.2/24 dev {inner}")
        self.run(f"ip link set {inner} up")

    def close(self) -> None:
        self.do(self.hub.stop)
        self._thread.shutdown()


class Node(Network):
    """A node with a link to the cloud, and one to the other nodes."""

    def __init__(self, number: int, authority: Authority, folder: Path) -> None:
        super().__init__(f"island-{number}")
        self.number, self.address = number, f"10.2.{number}.2"
        for kind, net in (("wan", 1), ("lan", 2)):
            self.connect(f"{kind}{number}", kind, f"10.{net}.{number}")
        for each in ("ip link set lo up", f"ip route add {CLOUD} via {{router}}"):
            self.alter(each)
        self.alter(f"ip route add 10.2.0.0/16 via 10.2.{number}.1")
        folder = folder / self.name
        folder.mkdir()
        credential = authority.issue_node(self.name)
        server = f"https://{CLOUD}:{PORT}"
        kubeconfig = write_kubeconfig(
            folder / "node.conf", server, authority=authority.certificate, credential=credential
        )
        flags = peer_flags(authority, folder, self.name, self.address, PEER_PORT)
        self.hub = Hub(folder, server, node=self.name, kubeconfig=kubeconfig, flags=flags)

    def alter(self, command: str) -> None:
        """Run a command in the node's network, with the router's address on its link to the cloud."""
        self.run(command.format(router=f"10.1.{self.number}.1"))

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(self.do, what):  # noqa: ASYNC110 - another process cannot tell
                await asyncio.sleep(0.1)

    def has_link(self, *via: str) -> bool:
        return any(self.hub.metric("edgehub_link", via=each) == 1 for each in via)

    def can_serve(self) -> bool:
        found = self.hub.debug("pool")
        return isinstance(found, dict) and found["canLead"] and found["role"] != "none"

    def renew(self, holder: str) -> int:
        """Renew the node's lease like kubelet; return the status of the response."""
        # The hub renews the Lease in the cloud as often as a kubelet does.
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 2}
        body = obj("Lease", self.name, "kube-node-lease", spec=spec)
        http = urllib3.PoolManager(retries=False, timeout=5, headers={"User-Agent": "kubelet/v1.34.0"})
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return http.request("PUT", f"{self.hub.url}{LEASES}/{self.name}", json=body).status
        return 0

    @contextlib.contextmanager
    def renewing(self, how: str) -> Iterator[None]:
        """Renew the lease repeatedly during this block, like a kubelet of the node."""
        over, number = threading.Event(), itertools.count()

        def renew() -> None:
            while not over.wait(EACH):
                self.renew(f"{how} {next(number)}")

        kubelet = threading.Thread(target=renew)
        self.do(kubelet.start)  # a thread inherits the network of the thread that starts it
        try:
            yield
        finally:
            over.set()
            kubelet.join()

    def executed(self) -> bytes:
        """Return the response to an exec through the node's hub."""
        return asyncio.run(executed(self.hub.url))


class Forwarder:
    """Forward callers, except those from one address."""

    def __init__(self) -> None:
        self._open: dict[asyncio.StreamWriter, str] = {}
        self._refused = ""

    def refuse(self, address: str) -> None:
        """Reset connections from an address, open and new ones; "" for none."""
        self._refused = address
        for each in [each for each, caller in self._open.items() if caller == address]:
            each.transport.abort()

    @contextlib.contextmanager
    def opened(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open[writer] = writer.get_extra_info("peername")[0]
        self.refuse(self._refused)
        try:
            yield
        finally:
            del self._open[writer]


@asynccontextmanager
async def in_the_cloud(
    authority: Authority, folder: Path, door: Forwarder | None = None
) -> AsyncIterator[ScriptableCloud]:
    """Run a cloud at the address CLOUD."""
    door = door or Forwarder()
    for each in ("ip link set lo up", f"ip addr add {CLOUD}/32 dev lo", "sysctl -q -w net.ipv4.ip_forward=1"):
        run(each)
    async with ScriptableCloud(tls=authority.server_context(folder, [CLOUD])) as cloud:

        async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            theirs, to_them = await asyncio.open_connection(LOOPBACK, int(cloud.url.rpartition(":")[2]))
            with contextlib.closing(writer), contextlib.closing(to_them), door.opened(writer):
                both = [asyncio.create_task(pump(*each)) for each in ((reader, to_them), (theirs, writer))]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for each in both:
                    each.cancel()
                await asyncio.gather(*both, return_exceptions=True)

        server = await asyncio.start_server(lead, CLOUD, PORT)
        yield cloud
        server.close()


def holder(cloud: ScriptableCloud, node: Node) -> str:
    """Return the holder of the node's lease in the cloud, as the hub's own responses do not show it."""
    spec = cloud.store.get("leases", node.name, "kube-node-lease")["spec"]
    return str(spec.get("holderIdentity", ""))


async def renewed(cloud: ScriptableCloud, node: Node, how: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holder(cloud, node).startswith(how):  # noqa: ASYNC110 - the store has no notification
            await asyncio.sleep(LOOK)


async def longest_gap(cloud: ScriptableCloud, node: Node, borrowed: Callable[[], Awaitable[None]]) -> float:
    """Return the longest time between two renewals at the cloud, up to the first one over the borrowed link."""
    waiting, last, at, longest = asyncio.ensure_future(borrowed()), holder(cloud, node), time.monotonic(), 0.0
    async with asyncio.timeout(PATIENCE):
        while True:
            is_borrowed = waiting.done()
            await asyncio.sleep(LOOK)
            if (found := holder(cloud, node)) != last:
                longest, last, at = max(longest, time.monotonic() - at), found, time.monotonic()
                if is_borrowed:
                    return longest


async def main(folder: Path) -> None:
    authority = Authority()
    async with AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(in_the_cloud(authority, folder))
        nodes = [Node(number, authority, folder) for number in (1, 2, 3)]
        for each in nodes:
            stack.push_async_callback(asyncio.to_thread, each.close)
        publish(cloud, {each.name: each.address for each in nodes})
        for each in nodes:
            cloud.store.create(obj("Lease", each.name, "kube-node-lease", spec={}))
        await asyncio.gather(*(asyncio.to_thread(each.do, each.hub.start) for each in nodes))
        for each in nodes:
            await each.until(each.can_serve)
        last, others = nodes[-1], [each.name for each in nodes[:-1]]
        for how, (cut, heal) in CUTS.items():
            await last.until(lambda: last.has_link("own"))
            with last.renewing(how):
                await renewed(cloud, last, how)
                await asyncio.to_thread(last.alter, cut)
                gap = await longest_gap(cloud, last, partial(last.until, lambda: last.has_link(*others)))
            print(f"{how}: longest gap of the lease {gap:.1f} s", file=sys.stderr)
            assert await asyncio.to_thread(last.do, last.executed) == b"\x00LS"
            print(f"{how}: the lease is renewed through another node", flush=True)
            await asyncio.to_thread(last.alter, heal)
        await last.until(lambda: last.has_link("own"))
        await asyncio.to_thread(last.alter, CUTS["refusing"][0])
        await last.until(lambda: last.has_link(*others))
        lender, other = nodes[:2] if last.do(lambda: last.has_link(nodes[0].name)) else nodes[1::-1]
        await asyncio.to_thread(lender.do, lender.hub.kill)
        await last.until(lambda: last.has_link(other.name))
        print("the lender is killed: the other node lends its way", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
