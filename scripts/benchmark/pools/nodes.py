"""The load of `scripts/bench --pool nodes`: a node pool whose followers read from one leader, until it is killed.

Six nodes have real hubs. The others are followers without a hub (`scripts.benchmark.pools.clients`), on their own
loopback addresses. The bench compares the pool with a hub outside any pool, which reads from the cloud.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp

from scripts.benchmark.load import (
    ENDPOINT_SLICES,
    HEADERS,
    REST,
    SLICES,
    cpu_seconds,
    endpoint_slice,
    listed_slices,
    new_cloud,
    p99,
    post_all,
    session,
    tree_megabytes,
    updates_of,
)
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.node_pools import POOLS
from tests.hub.support.pool_site import Member, Site
from tests.hub.support.process import Hub
from tests.support.background import beside
from tests.support.polling import PATIENCE, eventually

HUBS = 6
"""Nodes of the pool with a real hub; the first two can lead."""
ENDPOINTS = 10
NET, CLIENTS_NET = 40, 41
"""The nodes have the addresses 127.0.NET.1 and so on, those without a hub 127.0.CLIENTS_NET.1 and so on."""


@dataclass(slots=True)
class Client:
    """A kube-proxy at one hub, with the delay of each update and the longest time without an event."""

    hub: str
    late: list[float] = field(default_factory=list)
    gap: float = 0.0
    last: float = 0.0
    events: int = 0

    def take(self, now: float, sent: float) -> None:
        self.late.append(now - sent)
        if self.last:
            self.gap = max(self.gap, now - self.last)
        self.last, self.events = now, self.events + 1

    def forget(self) -> None:
        """Reset the measurements."""
        self.late.clear()
        self.gap, self.last, self.events = 0.0, 0.0, 0


class Crowd:
    """The followers without a hub, in another process."""

    def __init__(self, site: Site, nodes: Sequence[str], leaders: Sequence[Member]) -> None:
        folder = site.folder / "crowd"
        folder.mkdir()
        callers = [
            (
                f"127.0.{CLIENTS_NET}.{number}",
                *map(str, site.cloud.authority.issue_node(name).write(folder, name)),
            )
            for number, name in enumerate(nodes, 1)
        ]
        given = {
            "callers": callers,
            "leaders": [f"http://{leader.address}:{site.port}" for leader in leaders],
            "authority": str(site.cloud.authority_file),
        }
        (folder / "crowd.json").write_text(json.dumps(given))
        self.size = len(callers)
        command = [sys.executable, "-m", "scripts.benchmark.pools.clients", str(folder / "crowd.json")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE)

    def state(self) -> dict[str, Any]:
        """Request the state; see `scripts.benchmark.pools.clients.state`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("state\n")
        self._process.stdin.flush()
        state = json.loads(self._process.stdout.readline())
        assert isinstance(state, dict)
        return state

    def wait_until_full(self, slices: int) -> None:
        """Wait until all followers watch and have all slices."""

        def is_full() -> bool:
            state = self.state()
            return bool(state["watching"] == self.size and state["objects"] >= slices)

        eventually(is_full, "all followers watch", 10 * PATIENCE)


def fill(cloud: RealCloud, slices: int) -> None:
    post_all(cloud, ENDPOINT_SLICES, (endpoint_slice(number, ENDPOINTS) for number in range(slices)))


class Direct(NamedTuple):
    """A hub outside any pool, and its link to the cloud."""

    hub: Hub
    link: Link


@contextmanager
def running(cloud: RealCloud, folder: Path, nodes: int) -> Iterator[tuple[Site, Direct]]:
    """Run the hubs of the pool, whose first node leads, and a hub outside any pool."""
    site = Site(cloud, folder / "site", "bench", NET)
    site.folder.mkdir()
    site.prepare(*range(1, HUBS + 1))
    names = [member.name for member in site.members] + crowd_names(nodes)
    cloud.admin.patch(f"{POOLS}/bench/status", {"status": {"nodes": names}})
    leader = site.members[0]
    site.lead(leader)
    with Link(cloud.host, cloud.port) as link:
        url = f"https://{link.host}:{link.port}"
        direct = Hub(folder / "direct", url, node="direct", kubeconfig=cloud.node_kubeconfig("direct"))
        try:
            for hub in (leader.hub, direct):
                hub.start()
            eventually(lambda: leader.pool()["role"] == "leader", "the first node leads")
            for member in site.members[1:]:
                member.hub.start()
            for member in site.members[1:]:
                eventually(partial(follows, member), "the others follow")
            yield site, Direct(direct, link)
        finally:
            site.close()
            direct.stop()


def follows(member: Member) -> bool:
    return bool(member.pool()["role"] == "follower")


def crowd_names(nodes: int) -> list[str]:
    return [f"bench-crowd-{number}" for number in range(1, nodes - HUBS + 1)]


@asynccontextmanager
async def watching(hub: Hub, sent: dict[str, float]) -> AsyncIterator[Client]:
    """Run a kube-proxy that has listed all slices from a hub, and watches them."""
    client = Client(hub.node)
    async with session() as http:
        _, version = await listed_slices(http, hub.url)
        query = f"watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=3600"
        timeout = aiohttp.ClientTimeout(total=None)
        async with http.get(f"{hub.url}{SLICES}?{query}", headers=HEADERS, timeout=timeout) as answer:
            assert answer.status == 200, await answer.read()
            async with beside(_read(answer, client, sent)):
                yield client


async def _read(answer: aiohttp.ClientResponse, client: Client, sent: dict[str, float]) -> None:
    async for came, began in updates_of(answer, sent):
        client.take(came, began)


INTERVAL = 0.1
"""Seconds between two updates."""
THREADS = 8
"""Concurrent updates when the bench sends them as fast as kube-apiserver accepts them."""


@dataclass(slots=True)
class Scene:
    """The cloud, the pool and its clients."""

    site: Site
    direct: Direct
    crowd: Crowd
    clients: list[Client]
    sent: dict[str, float]
    names: Iterator[str]
    """The slices in the order of their updates, repeated endlessly."""


def update(scene: Scene, updates: int, interval: float = INTERVAL) -> int:
    """Send an update at each interval; with interval 0, as many as kube-apiserver accepts. Return the newest
    version."""
    began = time.perf_counter()

    def patch(number: int) -> int:
        obj = next(scene.names)
        time.sleep(max(0.0, began + number * interval - time.perf_counter()))
        scene.sent[obj] = time.perf_counter()
        change: Any = {"metadata": {"labels": {"bench": str(time.time_ns())}}}
        made = scene.site.cloud.admin.patch(f"{ENDPOINT_SLICES}/{obj}", change)
        return int(made["metadata"]["resourceVersion"])

    with ThreadPoolExecutor(1 if interval else THREADS) as threads:
        return max(threads.map(patch, range(updates)))


class Counted(NamedTuple):
    """The pool's counters at one moment."""

    cloud: float
    """Bytes on the cloud links of the pool's hubs."""
    direct: float
    """Bytes on the cloud link of the hub outside the pool."""
    sent: float
    """Bytes that the leaders have sent to followers."""
    cpu: float
    """CPU seconds of the first leader."""


def count(scene: Scene) -> Counted:
    members = scene.site.members
    running = [member.hub for member in members if member.hub.is_running]
    return Counted(
        *count_links(scene.site, scene.direct.link),
        sum(hub.metric("edgehub_peer_bytes_total", direction="sent") for hub in running),
        cpu_seconds(members[0].hub.pid) if members[0].hub.is_running else 0.0,
    )


async def measure(slices: int, nodes: int, updates: int) -> None:
    with new_cloud() as (cloud, folder):
        await asyncio.to_thread(fill, cloud, slices)
        with running(cloud, folder, nodes) as (site, direct):
            async with AsyncExitStack() as stack:
                sent: dict[str, float] = {}
                clients = [
                    await stack.enter_async_context(watching(hub, sent))
                    for hub in (direct.hub, *(member.hub for member in site.members[1:]))
                ]
                crowd = stack.enter_context(Crowd(site, crowd_names(nodes), site.members[:2]))
                await asyncio.to_thread(crowd.wait_until_full, slices)
                names = cycle([f"svc-{number}-abcde" for number in range(slices)])
                scene = Scene(site, direct, crowd, clients, sent, names)
                print(f"\na pool of {nodes} nodes, {slices} slices, {updates} updates at each rate")
                await steady(scene, nodes, updates)
                await failover(scene, nodes, updates)


def count_links(site: Site, link: Link) -> tuple[int, int]:
    pool = sum(member.link.traffic.down + member.link.traffic.up for member in site.members)
    return pool, link.traffic.down + link.traffic.up


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of updates for a pool with one leader, and their delay at clients."""

    rate: float
    """Updates per second."""
    spent: Counted
    cpu: float
    """CPU seconds of the leader per update and follower."""
    direct: list[float]
    """Seconds from an update to a client of the hub outside the pool."""
    followers: list[float]
    """Seconds from an update to a client of a follower."""


async def cost(scene: Scene, nodes: int, updates: int, interval: float) -> Cost:
    await have_all(scene, 20, await asyncio.to_thread(update, scene, 20))
    for client in scene.clients:
        client.forget()
    before, began = count(scene), time.perf_counter()
    version = await asyncio.to_thread(update, scene, updates, interval)
    rate = updates / (time.perf_counter() - began)
    await have_all(scene, updates, version)
    after = count(scene)
    spent = Counted(*(now - then for now, then in zip(after, before, strict=True)))
    late = [late for client in scene.clients[1:] for late in client.late]
    return Cost(rate, spent, spent.cpu / updates / (nodes - 1), list(scene.clients[0].late), late)


async def steady(scene: Scene, nodes: int, updates: int) -> None:
    """Measure updates with one leader: at an interval, and as fast as possible."""
    costs = [await cost(scene, nodes, updates, interval) for interval in (INTERVAL, 0.0)]
    await asyncio.sleep(REST)
    pid = scene.site.members[0].hub.pid
    pool, direct = count_links(scene.site, scene.direct.link)
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
    """Kill the first leader under load, while a second one runs."""
    first, second = scene.site.members[:2]
    scene.site.lead(first, second)
    await asyncio.to_thread(eventually, lambda: second.pool()["role"] == "leader", "the second node leads")
    await have_all(scene, 40 + updates, await asyncio.to_thread(update, scene, 40))
    for client in scene.clients:
        client.forget()
    lists = (await asyncio.to_thread(scene.crowd.state))["lists"]
    before = second.hub.metric("edgehub_peer_bytes_total", direction="sent")
    links = count_links(scene.site, scene.direct.link)[0]
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
    cloud = count_links(scene.site, scene.direct.link)[0] - links
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
    """Wait until each client has this many events, and each follower without a hub has this version."""
    waits: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: all(client.events >= updates for client in scene.clients), "all clients have all events"),
        (lambda: scene.crowd.state()["version"] >= version, "all followers have all events"),
    )
    for ready, what in waits:
        await asyncio.to_thread(eventually, ready, what, 3 * PATIENCE)
