"""A node with two links to the cloud, in its own network: `… two_uplinks FOLDER`. Runs as root of a new user and
network namespace (`unshare --map-root-user --net`), which is the cloud's network. Cuts the node's preferred link in
each way, and prints which link the node then uses."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import urllib3

from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.request_log import matching
from tests.hub.support.lone_links import register
from tests.hub.support.process import Hub
from tests.hub.support.three_networks import CLOUD, LEASES, PATIENCE, PORT, Forwarder, Network, in_the_cloud
from tests.support.objects import obj

NODE, PREFERRED, OTHER = "island-1", "wan1", "wan2"
ADDRESS = "10.1.1.2"
"""The address of the preferred uplink."""
LARGE = 100_000
"""Bytes of a large object."""
SERVICES = "/api/v1/services"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ROUTE = f"ip route replace {CLOUD} via 10.1.1.1 dev {PREFERRED} metric 1"
DROPPED = (
    f"ip neigh replace 10.1.1.1 lladdr 02:00:00:00:00:99 dev {PREFERRED} nud permanent",
    f"ip neigh del 10.1.1.1 dev {PREFERRED}",
)
DOWN = (f"ip link set {PREFERRED} down", f"ip link set {PREFERRED} up")


class Node(Network):
    """A node, and a watch through its hub."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        super().__init__(NODE)
        for number in (1, 2):
            self.connect(f"out{number}", f"wan{number}", f"10.1.{number}")
        self.run("ip link set lo up")
        self.run(ROUTE)
        self.run(f"ip route add {CLOUD} via 10.1.2.1 dev {OTHER} metric 2")
        server, credential = f"https://{CLOUD}:{PORT}", authority.issue_node(NODE)
        kubeconfig = write_kubeconfig(
            folder / "node.conf", server, authority=authority.certificate, credential=credential
        )
        uplinks = ("--uplink", f"{OTHER}:10,{PREFERRED}")
        self.hub = Hub(folder, server, node=NODE, kubeconfig=kubeconfig, flags=uplinks)
        self.events: list[str] = []
        self.has_ended = False

    def watch(self) -> None:
        """Watch Services like kube-proxy, from now on."""
        # A thread inherits the network of the thread that starts it.
        self.do(partial(threading.Thread(target=self._follow, daemon=True).start))

    def _follow(self) -> None:
        headers = {"User-Agent": "kube-proxy/v1.34.0", "Accept": "application/json"}
        answer = urllib3.PoolManager(retries=False).request(
            "GET",
            f"{self.hub.url}{SERVICES}?watch=true",
            headers=headers,
            preload_content=False,
            timeout=PATIENCE * 3,
        )
        for line in answer.stream(None):
            self.events += [
                json.loads(each)["object"]["metadata"]["name"] for each in line.splitlines() if each
            ]
        self.has_ended = True

    def renew(self, holder: str) -> int:
        """Renew the node's lease, which the hub relays; return the status of the response."""
        headers = {"User-Agent": "kubelet/v1.34.0", "Content-Type": "application/merge-patch+json"}
        url, body = f"{self.hub.url}{LEASES}/{NODE}", f'{{"spec":{{"holderIdentity":"{holder}"}}}}'
        try:
            return (
                urllib3.PoolManager(retries=False, timeout=10)
                .request("PATCH", url, body=body, headers=headers)
                .status
            )
        except urllib3.exceptions.HTTPError:
            return 0

    def fetch(self) -> set[str]:
        """Read a large object, which the hub relays; return the devices on which it arrived."""
        before = received()
        urllib3.PoolManager(retries=False, timeout=10).request("GET", self.hub.url + CONFIG_MAPS)
        return {name for name, size in received().items() if size - before[name] > LARGE}

    def says(self) -> tuple[bool, str, str]:
        """Return the uplinks in the metric, in `/readyz` and in the status report."""
        status = self.hub.debug("status")
        assert isinstance(status, dict)
        named = self.hub.metric("edgehub_link", via=f"uplink {status['cloud']['uplink']}") == 1
        return named, self.hub.admin("/readyz?exclude=node").strip(), status["cloud"]["uplink"]


def received() -> dict[str, int]:
    """Return the bytes received by each uplink of this thread's network."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    found = {
        name.strip(): int(counts.split()[0]) for name, _, counts in (each.partition(":") for each in lines)
    }
    return {each: found[each] for each in (PREFERRED, OTHER)}


async def until(node: Node, what: Callable[[], object], wanted: object) -> None:
    async with asyncio.timeout(PATIENCE):
        while (found := await asyncio.to_thread(node.do, what)) != wanted:
            print("waits:", found, file=sys.stderr)
            await asyncio.sleep(0.1)


async def assert_uses(node: Node, cloud: ScriptableCloud, uplink: str, how: str) -> None:
    """Check that the node's writes, reads and watch use only one uplink."""
    await until(node, partial(node.says), (True, f"ok, by the uplink {uplink}", uplink))
    await until(node, partial(node.renew, how), 200)
    await until(node, partial(node.fetch), {uplink})
    cloud.store.create(obj("Service", how.replace(" ", "-")))
    await until(node, partial(lambda: node.events[-1:]), [how.replace(" ", "-")])
    print(f"{how}: everything goes by {uplink}", flush=True)


async def main(folder: Path) -> None:
    authority = Authority()
    door = Forwarder()
    async with in_the_cloud(authority, folder, door) as cloud:
        register(cloud, NODE)
        cloud.store.create(obj("Lease", NODE, "kube-node-lease", spec={}))
        cloud.store.create(obj("ConfigMap", "large", "default", data={"x": "x" * LARGE}))
        node = await asyncio.to_thread(Node, authority, folder)
        try:
            await asyncio.to_thread(node.do, partial(node.hub.start))
            node.watch()
            await assert_uses(node, cloud, PREFERRED, "at first")
            listed = matching(verb="list", resource="services", full_objects=True)
            lists = len(cloud.requests.where(listed))
            for how, cut, heal in (("dropped", *DROPPED), ("refused", "", ""), ("down", *DOWN)):
                began = time.monotonic()
                if cut:
                    await asyncio.to_thread(node.run, cut)
                else:
                    door.refuse(ADDRESS)
                await assert_uses(node, cloud, OTHER, how)
                print(f"{how}: after {time.monotonic() - began:.1f} s", file=sys.stderr)
                if heal:
                    await asyncio.to_thread(node.run, heal)
                    await asyncio.to_thread(node.run, ROUTE)
                door.refuse("")
                await assert_uses(node, cloud, PREFERRED, f"{how} no longer")
            assert not node.has_ended
            assert len(cloud.requests.where(listed)) == lists
            print("the watch went on without a list", flush=True)
        finally:
            await asyncio.to_thread(node.close)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
