"""The load of `scripts/bench --pool nodes`: a node pool whose followers read from one leader, until it is killed.

Six nodes have real hubs. The others are followers without a hub (`scripts.benchmark.pools.clients`), on loopback
addresses of their own. The bench compares the pool with the hub of a node without a pool, which reads from the cloud.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from scripts.benchmark.load import ENDPOINT_SLICES, REST, cpu_seconds, new_cloud, p99, tree_megabytes
from scripts.benchmark.pools.site import Client, Crowd, crowd_names, fill, running, watching
from tests.cloud.link import Link
from tests.hub.support.pool_site import PATIENCE, Site, eventually
from tests.hub.support.process import Hub

INTERVAL = 0.1
"""Seconds between two updates."""
THREADS = 8
"""Updates under way at once where the bench sends them as fast as kube-apiserver takes them."""


@dataclass(slots=True)
class Scene:
    """The cloud, the pool and its clients."""

    site: Site
    direct: Hub
    direct_link: Link
    crowd: Crowd
    clients: list[Client]
    sent: dict[str, float]
    slices: int
    numbers: Iterator[int]


def update(scene: Scene, updates: int, interval: float = INTERVAL) -> int:
    """Send an update at each interval, or at 0 as many as kube-apiserver takes. Returns the newest version."""
    began = time.perf_counter()

    def patch(number: int) -> int:
        obj = f"svc-{next(scene.numbers) % scene.slices}-abcde"
        time.sleep(max(0.0, began + number * interval - time.perf_counter()))
        scene.sent[obj] = time.perf_counter()
        change: Any = {"metadata": {"labels": {"bench": str(time.time_ns())}}}
        made = scene.site.cloud.admin.patch(f"{ENDPOINT_SLICES}/{obj}", change)
        return int(made["metadata"]["resourceVersion"])

    with ThreadPoolExecutor(1 if interval else THREADS) as threads:
        return max(threads.map(patch, range(updates)))


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of the pool at one moment."""

    cloud: int
    """Bytes that crossed the cloud links of the pool's hubs."""
    direct: int
    """Bytes that crossed the cloud link of the hub without a pool."""
    sent: float
    """Bytes that the leaders have sent to followers."""
    cpu: float
    """CPU seconds of the first leader."""


def count(scene: Scene) -> Counted:
    members = scene.site.members
    links = [member.link.traffic for member in members]
    own = scene.direct_link.traffic
    return Counted(
        sum(link.down + link.up for link in links),
        own.down + own.up,
        sum(
            member.hub.metric("edgehub_peer_bytes_total", direction="sent")
            for member in members
            if member.hub.is_running
        ),
        cpu_seconds(members[0].hub.pid) if members[0].hub.is_running else 0.0,
    )


async def measure(slices: int, nodes: int, updates: int) -> None:
    with new_cloud() as (cloud, folder):
        await asyncio.to_thread(fill, cloud, slices)
        with running(cloud, folder, nodes) as (site, direct, link):
            async with AsyncExitStack() as stack:
                sent: dict[str, float] = {}
                clients = [
                    await stack.enter_async_context(watching(hub, sent))
                    for hub in (direct, *(member.hub for member in site.members[1:]))
                ]
                crowd = stack.enter_context(Crowd(site, crowd_names(nodes), site.members[:2]))
                await asyncio.to_thread(crowd.wait_until_full, slices)
                scene = Scene(site, direct, link, crowd, clients, sent, slices, iter(range(10**9)))
                await steady(scene, nodes, updates)
                await failover(scene, nodes, updates)


def count_links(site: Site, link: Link) -> tuple[int, int]:
    pool = sum(member.link.traffic.down + member.link.traffic.up for member in site.members)
    return pool, link.traffic.down + link.traffic.up


@dataclass(frozen=True, slots=True)
class Cost:
    """What updates cost a pool with one leader, and how late they came to clients."""

    rate: float
    """Updates a second."""
    spent: Counted
    cpu: float
    """CPU seconds of the leader for each update and follower."""
    direct: list[float]
    """Seconds from an update to a client of the hub without a pool."""
    followers: list[float]
    """The same to clients of followers."""


async def cost(scene: Scene, nodes: int, updates: int, interval: float) -> Cost:
    await have_all(scene, 20, await asyncio.to_thread(update, scene, 20))
    for client in scene.clients:
        client.forget()
    before, began = count(scene), time.perf_counter()
    version = await asyncio.to_thread(update, scene, updates, interval)
    rate = updates / (time.perf_counter() - began)
    await have_all(scene, updates, version)
    after = count(scene)
    spent = Counted(
        after.cloud - before.cloud,
        after.direct - before.direct,
        after.sent - before.sent,
        after.cpu - before.cpu,
    )
    late = [late for client in scene.clients[1:] for late in client.late]
    return Cost(rate, spent, spent.cpu / updates / (nodes - 1), list(scene.clients[0].late), late)


async def steady(scene: Scene, nodes: int, updates: int) -> None:
    """Measure updates with one leader: one after the other, and as fast as they go."""
    costs = [await cost(scene, nodes, updates, interval) for interval in (INTERVAL, 0.0)]
    await asyncio.sleep(REST)
    pid = scene.site.members[0].hub.pid
    pool, direct = count_links(scene.site, scene.direct_link)
    print(f"\na pool of {nodes} nodes, {scene.slices} slices, {updates} updates at each rate")
    for name, of in OF_UPDATES:
        print(f"{name:56}" + "".join(f"{of(cost):12.3f}" for cost in costs))
    for name, value in (
        ("bytes over cloud links ÷ one node's, since the start", pool / direct),
        ("leader resident, MB", tree_megabytes(pid)),
        ("leader at most, MB", tree_megabytes(pid, "VmHWM")),
    ):
        print(f"{name:56}{value:12.3f}")


OF_UPDATES: tuple[tuple[str, Callable[[Cost], float]], ...] = (
    ("updates a second", lambda cost: cost.rate),
    ("bytes over the pool's cloud links ÷ one node's", lambda cost: cost.spent.cloud / cost.spent.direct),
    ("MB over one node's cloud link", lambda cost: cost.spent.direct / 1e6),
    ("MB that the leader sent to followers", lambda cost: cost.spent.sent / 1e6),
    ("leader's CPU for each event and follower, ms", lambda cost: cost.cpu * 1e3),
    ("update to a client of a hub without a pool, p50 ms", lambda cost: statistics.median(cost.direct) * 1e3),
    ("  p99 ms", lambda cost: p99(cost.direct) * 1e3),
    ("update to a client of a follower, p50 ms", lambda cost: statistics.median(cost.followers) * 1e3),
    ("  p99 ms", lambda cost: p99(cost.followers) * 1e3),
    ("  p99 ÷ that without a pool", lambda cost: p99(cost.followers) / p99(cost.direct)),
)


async def failover(scene: Scene, nodes: int, updates: int) -> None:
    """Kill the first leader under load, while a second one is there."""
    first, second = scene.site.members[:2]
    scene.site.lead(first, second)
    await asyncio.to_thread(eventually, lambda: second.pool()["role"] == "leader", "the second node leads")
    await have_all(scene, 40 + updates, await asyncio.to_thread(update, scene, 40))
    for client in scene.clients:
        client.forget()
    lists = (await asyncio.to_thread(scene.crowd.state))["lists"]
    before = second.hub.metric("edgehub_peer_bytes_total", direction="sent")
    links = count_links(scene.site, scene.direct_link)[0]
    updating = asyncio.create_task(asyncio.to_thread(update, scene, 200))
    await asyncio.sleep(2)
    killed = time.perf_counter()
    first.hub.kill()
    gap = 0.0

    def moved() -> bool:
        nonlocal gap
        state = scene.crowd.state()
        gap = max(gap, state["gap"])
        return bool(state["watching"] == scene.crowd.size and not state["at"][0])

    await asyncio.to_thread(eventually, moved, "all follow the second leader")
    took = time.perf_counter() - killed
    spent = second.hub.metric("edgehub_peer_bytes_total", direction="sent") - before
    cloud = count_links(scene.site, scene.direct_link)[0] - links
    await have_all(scene, 200, await updating)
    state = await asyncio.to_thread(scene.crowd.state)
    rows = (
        ("seconds until all follow the second leader", took),
        (
            "longest time without news, a client of a follower, s",
            max(client.gap for client in scene.clients[1:]),
        ),
        ("longest time without news, any follower, s", max(gap, state["gap"])),
        ("lists of all slices that this cost", state["lists"] - lists),
        ("MB that the second leader sent until then", spent / 1e6),
        ("MB over the pool's cloud links until then", cloud / 1e6),
    )
    print(f"\nthe leader of {nodes - 1} followers is killed, {1 / INTERVAL:.0f} updates a second")
    for name, value in rows:
        print(f"{name:56}{value:12.3f}")


async def have_all(scene: Scene, updates: int, version: int) -> None:
    """Return when each client has this many events, and each follower without a hub this version."""
    waits: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: all(client.events >= updates for client in scene.clients), "all clients have all events"),
        (lambda: scene.crowd.state()["version"] >= version, "all followers have all events"),
    )
    for ready, what in waits:
        await asyncio.to_thread(eventually, ready, what, 3 * PATIENCE)
