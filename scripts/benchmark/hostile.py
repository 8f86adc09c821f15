"""`scripts/bench --hostile`: runs all attacks at once; measures the hub's memory afterwards, its loop's longest pause,
and kubelet's slowest answer."""

from __future__ import annotations

import asyncio
import sys
import time

from scripts.benchmark.load import REST, fill, hubs_cloud, lists, tree_megabytes, watches
from tests.hub.support.hostile import PAUSES, Siege, besiege
from tests.hub.support.pauses import FILE
from tests.hub.support.process import Hub

SHARE = 1.5
"""The highest ratio of the hub's memory under attack to its memory after the bench's load."""
WORST = 1.0
"""Seconds in which kubelet must get each answer."""
LONGEST = 0.1
"""CPU seconds that one callback in the hub's event loop may take: the most that one request or object may cost."""


def measure(services: int, endpoints: int, seconds: float) -> tuple[float, Siege]:
    """Return the resident megabytes after the bench's load, and the result of the attacks."""
    with hubs_cloud() as (cloud, root):
        fill(cloud, services, endpoints)
        folder, kubeconfig = root / "hub", cloud.node_kubeconfig("node-1")
        folder.mkdir()
        env = {FILE: str(folder / PAUSES), "MALLOC_ARENA_MAX": "1"}
        program = ("tests.hub.support.pauses",)
        with Hub(folder, cloud.url, kubeconfig=kubeconfig, program=program, env=env) as hub:
            pid = hub.process.pid
            asyncio.run(lists(hub.url, pid, 20))
            asyncio.run(watches(hub.url, pid, cloud, 50, 20))
            time.sleep(REST)
            before = tree_megabytes(pid)
            (folder / PAUSES).unlink(missing_ok=True)
            return before, asyncio.run(besiege(hub, cloud, folder, seconds))


def report(before: float, siege: Siege) -> None:
    """Print the figures; exit status 1 if a bound is exceeded."""
    worst = max(siege.answers)
    pause = siege.pauses[0].cpu if siege.pauses else 0.0
    for name, value in (
        ("resident after the load, MB", before),
        ("resident at most, MB", siege.peak),
        ("ratio", siege.peak / before),
        ("kubelet's worst answer, s", worst),
        ("the loop's longest pause, CPU s", pause),
        ("the same by the clock, s", max((pause.wall for pause in siege.pauses), default=0.0)),
        ("kubelet's answers", float(len(siege.answers))),
        ("kubelet's failures", float(len(siege.failures))),
    ):
        print(f"{name:32}{value:10.3f}")
    print(f"{'attack':32}{'carried':>10}{'stopped':>10}")
    for name, (carried, stopped) in siege.attacks.items():
        print(f"{name:32}{carried:10}{stopped:10}")
    print(*siege.pauses[:10], *siege.failures[:10], sep="\n")
    if siege.failures or pause > LONGEST or worst > WORST or siege.peak > SHARE * before:
        sys.exit(1)
