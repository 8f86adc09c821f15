"""The load of `scripts/bench --links`: a hub on slow links, from its cold start to an outage, and the bytes on them.

The link delays bytes, with jitter. It accepts connections at once, as a satellite terminal does, so that TCP's own
handshake costs no round trip.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import urllib3

from addons.link.probes import SPARE_INTERVAL
from kube.json_type import Json
from scripts.benchmark import freshness, quiet_node
from scripts.benchmark.load import hubs_cloud
from scripts.benchmark.pools import followers
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

NODE = "node-1"
COLD = (0.05, 0.6, 1.0, 2.0, 3.0)
"""Round trips, in seconds, for cold starts and black holes; a link worsens to each of them but the first."""
NEAR = 0.05
TRIPS, BESIDES = 8, 10.0
"""Round trips, and seconds in addition, within which a hub must be ready."""
STEADY = 20.0
"""Seconds measured after a link has changed, with a write every two seconds."""
SPARE = 240.0
"""Seconds. The third such period has a probe of a spare uplink, including the close of its connection; the second has
none."""
DAY = 86400
LONGEST = 120.0
"""Seconds. The longest wait."""
GETS = 10
EVENTS = "/api/v1/namespaces/default/events"


class Site:
    """A cloud, and hubs connected to it by links."""

    def __init__(self, cloud: RealCloud, folder: Path) -> None:
        self._cloud, self._folder = cloud, folder
        self._hubs = 0

    @contextmanager
    def hub(self, round_trip: float, *flags: str, launched: bool = True) -> Iterator[tuple[Hub, Link]]:
        """Make a hub behind a link with these round trips, and start it if `launched`."""
        self._hubs += 1
        kubeconfig = self._cloud.node_kubeconfig(NODE)
        with Link(self._cloud.host, self._cloud.port) as link:
            lengthen(link, round_trip)
            made = Hub(
                self._folder / str(self._hubs),
                f"https://{link.host}:{link.port}",
                node=NODE,
                kubeconfig=kubeconfig,
                flags=flags,
            )
            if launched:
                made.launch()
            try:
                yield made, link
            finally:
                made.stop()


def lengthen(link: Link, round_trip: float, loss: float = 0.0) -> None:
    link.carry(delay=round_trip * 0.45, jitter=round_trip * 0.1, loss=loss)


WORSE = {
    **{str(seconds): partial(lengthen, round_trip=seconds) for seconds in COLD[1:]},
    "0.2, 5 % lost": partial(lengthen, round_trip=0.2, loss=0.05),
}
"""The changes of a link with round trips of NEAR."""


def outages(hub: Hub) -> int:
    return sum("is down" in line for line in hub.process.lines)


def until(condition: Callable[[], bool]) -> float:
    """Return the seconds until the condition holds; LONGEST if it does not hold by then."""
    began = time.monotonic()
    while not condition() and time.monotonic() - began < LONGEST:
        time.sleep(0.02)
    return time.monotonic() - began


def cold_starts(site: Site) -> None:
    print(f"\n{'cold start, round trip s':28}{'ready s':>9}{'promised':>9}{'outages':>9}")
    for round_trip in COLD:
        with site.hub(round_trip) as (hub, _):
            seconds = until(partial(is_ready, hub))
            promised = TRIPS * round_trip + BESIDES
            print(f"{round_trip:28}{seconds:9.1f}{promised:9.1f}{outages(hub):9}")


def is_ready(hub: Hub) -> bool:
    return any(line.endswith(": ready") for line in hub.process.lines)


def steps(site: Site) -> None:
    print(f"\n{'step from 0.05 s to s':28}{'outages':>9}{'writes':>9}{'failed':>9}{'median s':>10}")
    for name, worsen in WORSE.items():
        with site.hub(NEAR) as (hub, link):
            hub.wait_until_ready()
            time.sleep(2)
            worsen(link)
            statuses, seconds = writes(hub)
            failed = sum(status != 201 for status in statuses)
            print(f"{name:>28}{outages(hub):9}{len(statuses):9}{failed:9}{statistics.median(seconds):10.2f}")


def writes(hub: Hub) -> tuple[list[int], list[float]]:
    """Send writes over an open connection; return the answers, and the seconds of each."""
    http = urllib3.PoolManager(retries=False)
    statuses, seconds = [], []
    ends = time.monotonic() + STEADY
    while time.monotonic() < ends:
        began = time.monotonic()
        name = f"e{time.time_ns():x}"
        involved = {"kind": "Pod", "namespace": "default", "name": "p"}
        body: Json = {"metadata": {"name": name}, "involvedObject": involved, "reason": "R", "type": "Normal"}
        statuses.append(http.request("POST", hub.url + EVENTS, json=body).status)
        seconds.append(time.monotonic() - began)
        time.sleep(2)
    return statuses, seconds


def black_holes(site: Site) -> None:
    print(f"\n{'black hole, round trip s':28}{'noticed s':>10}")
    for round_trip in COLD:
        with site.hub(round_trip) as (hub, link):
            hub.wait_until_ready()
            time.sleep(10 * round_trip)
            link.black_hole()
            print(f"{round_trip:28}{until(lambda: outages(hub) > 0):10.1f}")


def borrowed(folder: Path) -> None:
    """Measure the lease of a node whose own link is cut, in network namespaces that this process makes."""
    print(f"\n{'own link of a node in a pool':50}{'longest gap of its lease':>26}")
    folder.mkdir()
    scene = ["-m", "tests.hub.support.three_networks", str(folder)]
    command = ["unshare", "--map-root-user", "--net", sys.executable, *scene]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        how, _, gap = line.partition(": longest gap of the lease ")
        if gap:
            print(f"{how:50}{gap:>26}")
    if done.returncode:
        print(f"not measured to the end: {done.stderr.strip().splitlines()[-1]}")


def spare_uplink(site: Site) -> int:
    """Measure the bytes of a spare uplink's probe, in addition to those counted for the uplink in use."""
    with site.hub(NEAR, "--uplink", "127.0.0.2,127.0.0.3") as (hub, link):
        hub.wait_until_ready()
        counts = []
        for _ in range(3):
            time.sleep(SPARE)
            counts.append(link.traffic.up + link.traffic.down)
    return (counts[2] - counts[1]) - (counts[1] - counts[0])


def relayed_get(site: Site) -> None:
    """Print the bytes on the link of a GET of the Node by clients that each open a new connection."""
    with site.hub(NEAR) as (hub, link):
        hub.wait_until_ready()
        time.sleep(15)
        sizes = []
        for _ in range(GETS):
            before = link.traffic
            with urllib3.PoolManager(retries=False, headers={"User-Agent": "reader/v1"}) as client:
                client.request("GET", f"{hub.url}/api/v1/nodes/{NODE}")
            after = link.traffic
            sizes.append(after.up - before.up + after.down - before.down)
    # The first one makes its heads known, and any may have a ping beside it.
    print(f"\n{'a relayed GET, first, and later':50}{sizes[0] / 1e3:9.2f}{min(sizes[1:]) / 1e3:9.2f} KB")


def copies(cloud: RealCloud, folder: Path) -> None:
    """Print the cost of disk copies, for a node and for a follower of a pool."""
    made = 0
    for size in freshness.SIZES:
        freshness.fill(cloud, made, size)
        made = size
        freshness.measure(cloud, folder / f"copies-{size}", size)
        followers.measure(cloud, folder / f"followers-{size}", size)


def measure(which: str) -> None:
    """Print all tables, or one: "quiet" of a node with kubelet and kube-proxy, "copies" of the cost of fresh copies."""
    with hubs_cloud() as (cloud, folder):
        if which == "quiet":
            quiet_node.measure(cloud, folder / "quiet")
            return
        if which == "copies":
            copies(cloud, folder)
            return
        cloud.admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        site = Site(cloud, folder / "hubs")
        cold_starts(site)
        steps(site)
        black_holes(site)
        borrowed(folder / "borrowed")
        relayed_get(site)
        copies(cloud, folder)
        with ThreadPoolExecutor(1) as beside:
            spare = beside.submit(spare_uplink, site)
            quiet_node.measure(cloud, folder / "quiet")
        print(f"\n{'spare uplink':28}{'B a probe':>10}{'MB a day':>10}")
        print(f"{'':28}{spare.result():10}{spare.result() / SPARE_INTERVAL * DAY / 1e6:10.2f}")
