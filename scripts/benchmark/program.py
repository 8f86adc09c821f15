"""`scripts/bench`: measures the hub, and bare mitmdump with streaming on, in front of the same real kube-apiserver.

Figures are comparable within one run; only ratios are comparable between machines. The two proxies alternate for
several rounds, so that other work of the machine disturbs both. A ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import urllib3

from scripts.benchmark import bindings, hostile, interface, links, manager, offline, topology
from scripts.benchmark.kills import storms as kill_storms
from scripts.benchmark.load import (
    REST,
    SLICES,
    cpu_seconds,
    events_alone,
    fill,
    gets,
    hubs_cloud,
    lists,
    tree_megabytes,
    waiting,
    watches,
)
from scripts.benchmark.pools import fleet
from scripts.benchmark.pools import links as pool_links
from scripts.benchmark.pools import nodes as pool_nodes
from scripts.benchmark.pools import rollout as pool_rollout
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

BARE = """
def responseheaders(flow):
    flow.response.stream = True
"""
FIRST = "/readyz"
"""A small request that both proxies relay to kube-apiserver, which answers it without credentials."""
SETTLING = 1.0
"""Seconds from mitmdump's open port to its first request. A request that arrives before its addons run would end it."""


class Started(NamedTuple):
    """A proxy that has answered its first request."""

    url: str
    pid: int
    seconds: float
    """Seconds until the first answer."""
    cpu: float
    """CPU seconds until then, without later polls such as those of the hub's readiness."""


type Figures = dict[str, list[float]]
"""The figures of one proxy, by name; a value for each round."""


@contextmanager
def bare(cloud: RealCloud, folder: Path) -> Iterator[Started]:
    """Start mitmdump as a plain proxy of a kube-apiserver."""
    folder.mkdir()
    port = free_port()
    script = folder / "stream.py"
    script.write_text(BARE)
    certificate, key = cloud.authority.issue_node("node-1").write(folder, "node-1")
    both = folder / "node-1.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    command = [
        *(Path(sys.executable).with_name("mitmdump"), "-q", "-s", script),
        *("--mode", f"reverse:{cloud.url}@{LOOPBACK}:{port}"),
        *("--set", f"ssl_verify_upstream_trusted_ca={cloud.authority_file}", "--set", f"client_certs={both}"),
        *("--set", "connection_strategy=lazy"),
    ]
    process = Process("mitmdump", [str(argument) for argument in command], folder)
    url = f"http://{LOOPBACK}:{port}"
    http = urllib3.PoolManager(retries=False)
    try:
        try:
            seconds = waiting(lambda: _listens(port))
            time.sleep(SETTLING)
            seconds += waiting(lambda: _answers(http, url + FIRST))
        except TimeoutError:
            raise process.failure("did not become ready") from None
        yield Started(url, process.pid, seconds, cpu_seconds(process.pid))
    finally:
        process.stop()


@contextmanager
def hub(cloud: RealCloud, folder: Path, server: str) -> Iterator[Started]:
    """Start the hub as `scripts/hub` does, and wait until it is ready."""
    made = Hub(folder, server, kubeconfig=cloud.node_kubeconfig("node-1"))
    http = urllib3.PoolManager(retries=False)
    try:
        made.launch()
        seconds = waiting(lambda: _answers(http, made.url + FIRST))
        started = Started(made.url, made.pid, seconds, cpu_seconds(made.pid))
        made.wait_until_ready()
        yield started
    finally:
        made.stop()


def measure(
    cloud: RealCloud, folder: Path, arguments: argparse.Namespace
) -> tuple[Figures, Figures, list[float]]:
    """Return the figures of the hub and of mitmdump, and the hub's CPU seconds per event of a source without a
    watcher."""
    figures: tuple[Figures, Figures] = {}, {}
    alone = []
    for number in range(arguments.rounds):
        starts = hub(cloud, folder / f"hub-{number}", cloud.url), bare(cloud, folder / f"bare-{number}")
        for made, start in zip(figures, starts, strict=True):
            with start as started:
                # Other processes disturb the CPU seconds less than the time.
                _add(
                    made, {"first answer after start, s": started.seconds, "first answer, CPU s": started.cpu}
                )
    with hub(cloud, folder / "hub", cloud.url) as mine, bare(cloud, folder / "bare") as others:
        for _ in range(arguments.rounds):
            for made, proxy in zip(figures, (mine, others), strict=True):
                _add(made, measure_round(proxy.url, proxy.pid, cloud, arguments))
            alone.append(asyncio.run(events_alone(mine.url, mine.pid, cloud, arguments.updates)))
        time.sleep(REST)
        for made, proxy in zip(figures, (mine, others), strict=True):
            resident, peak = tree_megabytes(proxy.pid), tree_megabytes(proxy.pid, "VmHWM")
            _add(made, {"whole tree resident, MB": resident, "whole tree at most, MB": peak})
    return *figures, alone


def _add(figures: Figures, values: Mapping[str, float]) -> None:
    for name, value in values.items():
        figures.setdefault(name, []).append(value)


def measure_round(url: str, pid: int, cloud: RealCloud, arguments: argparse.Namespace) -> dict[str, float]:
    listed = asyncio.run(lists(url, pid, arguments.lists))
    watched = asyncio.run(watches(url, pid, cloud, arguments.watchers, arguments.updates))
    got, rate = asyncio.run(gets(url, pid, 8, arguments.gets))
    return {
        "list of all slices, p50 ms": listed.p50 * 1e3,
        "list of all slices, CPU ms": listed.cpu * 1e3,
        "watch event, p50 ms": watched.p50 * 1e3,
        "watch event, p99 ms": watched.p99 * 1e3,
        "watch event, CPU ms": watched.cpu * 1e3,
        "relayed GET, p50 ms": got.p50 * 1e3,
        "relayed GET, CPU ms": got.cpu * 1e3,
        "relayed GETs a second": rate,
    }


def first_copy(cloud: RealCloud, folder: Path) -> float:
    """Measure the megabytes on the cloud link until a client has its first filtered list."""
    with (
        Link(cloud.host, cloud.port) as link,
        hub(cloud, folder, f"https://{LOOPBACK}:{link.port}") as started,
    ):
        before = link.traffic.down
        http = urllib3.PoolManager(retries=False)
        headers = {"User-Agent": "kube-proxy/v1", "Accept": "application/vnd.kubernetes.protobuf"}
        answer = http.request("GET", f"{started.url}{SLICES}?resourceVersion=0", headers=headers)
        assert answer.status == 200, answer.data
        return (link.traffic.down - before) / 1e6


def measure_topology(slices: int) -> None:
    with hubs_cloud() as (cloud, folder):
        topology.fill(cloud, slices)
        with Hub(folder / "hub", cloud.url, kubeconfig=cloud.node_kubeconfig("node-1")) as made:
            costs = asyncio.run(topology.topology(made, cloud, slices))
    topology.report(costs, slices)


def options() -> argparse.ArgumentParser:
    """Build the parser: the sizes of the default load, and an option for each other load."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    for name, default in (
        ("services", 1000),
        ("endpoints", 50),
        ("lists", 20),
        ("watchers", 50),
        ("updates", 100),
        ("gets", 200),
        ("rounds", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, (what, _) in LOADS.items():
        parser.add_argument(f"--{name}", action="store_true", help=f"Only {what}")
    parser.add_argument("--slices", type=int, default=5000, help="With --topology, --manager and --pool.")
    parser.add_argument(
        "--pool",
        nargs="?",
        const="all",
        choices=("all", "links", "nodes"),
        help="Only node pools: bytes and encodings on their links, and costs of a leader and its followers.",
    )
    parser.add_argument(
        "--links",
        nargs="?",
        const="all",
        choices=("all", "copies", "quiet"),
        help="Only slow links: starts, outages, bytes of copies and of a quiet node. copies, quiet: only this one.",
    )
    parser.add_argument("--pool-nodes", type=int, default=100, help="With --pool: number of nodes.")
    parser.add_argument(
        "--pool-updates", type=int, default=1000, help="With --pool: number of slice updates."
    )
    parser.add_argument(
        "--hostile",
        type=int,
        nargs="?",
        const=600,
        metavar="SECONDS",
        help="Only the hub under attack. Default: 600 seconds.",
    )
    parser.add_argument(
        "--kills",
        type=int,
        nargs="?",
        const=1000,
        metavar="N",
        help="Only hubs that are killed during many writes. Default: 1000 kills.",
    )
    parser.add_argument("--seed", type=int, default=1, help="With --kills: seed of the random choices.")
    return parser


def main() -> None:
    """Run the load that the options name, and print its figures."""
    arguments = options().parse_args()
    if arguments.hostile:
        hostile.report(*hostile.measure(arguments.services, arguments.endpoints, arguments.hostile))
    elif arguments.kills:
        kill_storms.report(kill_storms.measure(arguments.kills, arguments.seed))
    elif arguments.pool:
        if arguments.pool != "nodes":
            pool_links.measure_links()
        if arguments.pool != "links":
            asyncio.run(pool_nodes.measure(arguments.slices, arguments.pool_nodes, arguments.pool_updates))
    elif arguments.links:
        links.measure(arguments.links)
    elif chosen := [run for name, (_, run) in LOADS.items() if getattr(arguments, name)]:
        chosen[0](arguments)
    else:
        with hubs_cloud() as (cloud, folder):
            fill(cloud, arguments.services, arguments.endpoints)
            figures = measure(cloud, folder, arguments)
            copied = first_copy(cloud, folder / "link")
        report(*figures, copied)


LOADS: Mapping[str, tuple[str, Callable[[argparse.Namespace], None]]] = {
    "topology": ("what changes of filters' inputs cost.", lambda given: measure_topology(given.slices)),
    "manager": (
        "the manager, in a cluster of 1,000 nodes.",
        lambda given: manager.measure(manager.Size(slices=given.slices)),
    ),
    "bindings": (
        "the manager, with bindings of 1,000 workloads.",
        lambda _: bindings.measure(bindings.Size()),
    ),
    "interface": (
        "what an interface of mitmproxy costs a hub.",
        lambda given: interface.measure(given.services, given.endpoints),
    ),
    "offline": (
        "the disk, and the node without its cloud.",
        lambda given: offline.measure(given.services, given.endpoints, given.watchers, given.updates),
    ),
    "fleet": (
        "what a thousand hubs cost the cloud's links, plain, with leaders and with a relay.",
        lambda _: fleet.measure(),
    ),
    "rollout": (
        "fifty nodes that join, meet a bad version, roll forward and leave, in minutes.",
        lambda _: pool_rollout.measure(),
    ),
}
"""The loads whose option has no value, by option: the help text, and the function."""


def report(mine: Figures, bare_: Figures, alone: list[float], copied: float) -> None:
    """Print the medians of the rounds, and the medians of their ratios."""
    print(f"{'':32}{'hub':>10}{'mitmdump':>10}{'ratio':>8}{'from':>8}{'to':>8}")
    for name, values in mine.items():
        others = bare_[name]
        ratios = [one / other if other else 0.0 for one, other in zip(values, others, strict=True)]
        print(
            f"{name:32}{median(values):10.3f}{median(others):10.3f}"
            f"{median(ratios):8.2f}{min(ratios):8.2f}{max(ratios):8.2f}"
        )
    print(f"{'cloud event, no client, CPU ms':32}{median(alone) * 1e3:10.3f}")
    print(f"{'first copy over the link, MB':32}{copied:10.3f}")


def _answers(http: urllib3.PoolManager, url: str) -> bool:
    try:
        return http.request("GET", url).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


if __name__ == "__main__":
    main()
