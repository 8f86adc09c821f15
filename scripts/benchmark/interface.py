"""The load of `scripts/bench --interface`: ten thousand requests to a hub with `--ui web`, and to one without."""

from __future__ import annotations

import asyncio

from scripts.benchmark.load import fill, gets, hubs_cloud, lists, tree_megabytes
from tests.cloud.ports import free_port
from tests.hub.support.process import Hub

REQUESTS = 10_000
CLIENTS = 8
LISTS = 50
"""Large lists among the requests, which an interface stores as tables."""


def measure(services: int, endpoints: int) -> None:
    """Print the figures with an interface, and without."""
    settings = ("--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    with hubs_cloud() as (cloud, folder):
        fill(cloud, services, endpoints)
        kubeconfig = cloud.node_kubeconfig("node-1")

        def figures(name: str, *flags: str) -> dict[str, float]:
            with Hub(folder / name, cloud.url, kubeconfig=kubeconfig, flags=flags) as hub:
                asyncio.run(lists(hub.url, hub.pid, LISTS))
                # Half of the requests warm the hub up, and count for its memory.
                got, rate = asyncio.run(gets(hub.url, hub.pid, CLIENTS, REQUESTS // CLIENTS // 2))
                return {
                    "resident, MB": tree_megabytes(hub.pid),
                    "resident at most, MB": tree_megabytes(hub.pid, "VmHWM"),
                    "relayed GET, CPU ms": got.cpu * 1e3,
                    "relayed GETs a second": rate,
                }

        with_it, without = figures("interface", "--ui", "web", "--", *settings), figures("plain")
    print(f"{REQUESTS} GETs and {LISTS} lists{'--ui web':>20}{'none':>10}")
    for name, value in with_it.items():
        print(f"{name:27}{value:20.3f}{without[name]:10.3f}")
