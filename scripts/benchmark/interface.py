"""The load of `scripts/bench --interface`: ten thousand requests to a hub with `--ui web`, and to one without."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from scripts.benchmark.load import Spent, fill, gets, hubs_cloud, lists, tree_megabytes
from tests.cloud.ports import free_port
from tests.hub.support.process import Hub

REQUESTS = 10_000
CLIENTS = 8
LISTS = 50
"""Large lists among them, of which an interface keeps a table."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one hub did."""

    gets: Spent
    rate: float
    resident: float
    peak: float


def measure(services: int, endpoints: int) -> tuple[Figures, Figures]:
    """The figures with an interface, and without."""
    settings = ("--set", f"web_port={free_port()}", "--set", "web_open_browser=false")
    with hubs_cloud() as (cloud, folder):
        fill(cloud, services, endpoints)
        kubeconfig = cloud.node_kubeconfig("node-1")

        def figures(name: str, *flags: str) -> Figures:
            with Hub(folder / name, cloud.url, kubeconfig=kubeconfig, flags=flags) as hub:
                asyncio.run(lists(hub.url, hub.pid, LISTS))
                # Half of the requests warm the hub up, and count for its memory.
                got, rate = asyncio.run(gets(hub.url, hub.pid, CLIENTS, REQUESTS // CLIENTS // 2))
                return Figures(got, rate, tree_megabytes(hub.pid), tree_megabytes(hub.pid, "VmHWM"))

        return figures("interface", "--ui", "web", "--", *settings), figures("plain")


def report(interface: Figures, plain: Figures) -> None:
    print(f"{REQUESTS} GETs and {LISTS} lists{'--ui web':>20}{'none':>10}")
    for name, with_it, without in (
        ("resident, MB", interface.resident, plain.resident),
        ("resident at most, MB", interface.peak, plain.peak),
        ("relayed GET, CPU ms", interface.gets.cpu * 1e3, plain.gets.cpu * 1e3),
        ("relayed GETs a second", interface.rate, plain.rate),
    ):
        print(f"{name:27}{with_it:20.3f}{without:10.3f}")
