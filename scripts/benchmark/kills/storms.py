"""Runs the storms of several nodes side by side before one control plane, and prints what they found."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from kube.concurrency.pulse import Pulse
from scripts.benchmark.kills.forked import ForkedHub, Nursery
from scripts.benchmark.kills.storm import RULE_SETS, RULES, Storm, pods_of
from scripts.benchmark.kills.watched import CloudWatch
from scripts.benchmark.kills.writes import Figures
from tests.cloud.build import ensure_binaries
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud

NODES = 6
"""As many as keep two cores busy: a life of a hub is mostly waiting for the moment of its end."""


def measure(kills: int, seed: int) -> Figures:
    """Kill hubs so often."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cloud = stack.enter_context(RealCloud(place / "cloud", ensure_binaries()))
        nodes = [f"node-{number}" for number in range(NODES)]
        _prepare(cloud, nodes)
        nursery = stack.enter_context(Nursery())
        hubs = []
        for node in nodes:
            link = stack.enter_context(Link(cloud.host, cloud.port))
            server, kubeconfig = f"https://{LOOPBACK}:{link.port}", cloud.node_kubeconfig(node)
            hub = ForkedHub(place / node, server, node=node, kubeconfig=kubeconfig)
            hub.nursery = nursery
            stack.callback(hub.stop)
            hubs.append((hub, link))
        return asyncio.run(_measured(hubs, cloud, kills, seed))


def _prepare(cloud: RealCloud, nodes: list[str]) -> None:
    cloud.apply(HUB_RBAC)
    cloud.admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    cloud.admin.post(
        RULES, {"metadata": {"name": "yurt-hub-cfg"}, "data": {"discardcloudservice": RULE_SETS[0]}}
    )
    for node in nodes:
        cloud.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
        for pod in pods_of(node):
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
            cloud.admin.post("/api/v1/namespaces/default/pods", {"metadata": {"name": pod}, "spec": spec})


async def _measured(hubs: list[tuple[ForkedHub, Link]], cloud: RealCloud, kills: int, seed: int) -> Figures:
    figures = Figures()

    def fault(text: str) -> None:
        figures.faults.append(f"after {figures.kills} kills: {text}")
        print(figures.faults[-1], file=sys.stderr)

    def numbers() -> Iterator[int]:
        for number in range(kills):
            yield number
            if (number + 1) % 50 == 0:
                print(f"{figures.kills} kills, {len(figures.faults)} faults", file=sys.stderr)

    numbered = numbers()
    with ThreadPoolExecutor(4 * len(hubs)) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        moved = Pulse()
        storms = [Storm(hub, cloud, link, moved, figures, fault, f"{seed} {hub.node}") for hub, link in hubs]
        watching = asyncio.create_task(CloudWatch(cloud, storms, moved).run())
        try:
            await asyncio.gather(*(storm.begin() for storm in storms))
            async with asyncio.TaskGroup() as running:
                for storm in storms:
                    running.create_task(storm.run(lambda: next(numbered, None)))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    return figures


def report(figures: Figures) -> None:
    """Print the figures; exit status 1 where a write was lost or went over a newer one."""
    waits = sorted(figures.waits)
    for name, value in (
        ("kills", figures.kills),
        ("writes accepted", figures.accepted),
        ("  of them without the cloud", figures.offline),
        ("writes whose answer was lost", figures.unknown),
        ("writes refused", figures.refused),
        ("entries replayed, at least", figures.replayed),
        ("faults excused by a slow disk", figures.excused),
        ("faults", len(figures.faults)),
        ("answer, p50 ms", waits[len(waits) // 2] * 1e3 if waits else 0),
        ("answer, p99 ms", waits[len(waits) * 99 // 100] * 1e3 if waits else 0),
    ):
        print(f"{name:32}{value:10.0f}")
    print(*figures.faults[:20], sep="\n")
    if figures.faults or not figures.accepted:
        sys.exit(1)
