"""The load of `scripts/bench --offline`: the cost of the disk, restarts without a cloud, and the bytes of an idle
link."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from addons.offline.copies import DiskCopies
from addons.offline.tables.disk_access import DiskAccess
from kube.disk.database import Batch, Disk, TableChanges
from kube.disk.writer import DiskWriter
from kube.reflector.list_pages import read_items
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from scripts.benchmark.load import HEADERS, SLICES, fill, hubs_cloud, listed_slices, session, watches
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub
from tests.support.background import beside

SERVICES = "/api/v1/services"
ROUNDS = 5
"""Repetitions of short measurements; their median counts."""
WATCH_ROUNDS = 5
"""Repetitions of the watches, each with and without disk."""
WATCH_UPDATES = 3
"""Factor for the number of updates: with only 100, the p99 would be the slowest one, which varies by half."""
ENTRY, SYNCS = 20_000, 50
"""Bytes of a node's status in the journal, and the number of its writes."""
QUIET = 2.0
"""Seconds after the last answer until the hub has finished all work."""
IDLE = 30.0
"""Seconds for which the bench counts the bytes of an idle link."""


@dataclass(slots=True)
class Lateness:
    """Measures how many seconds late a sleep of one millisecond ends."""

    worst: float = 0.0
    wakes: list[float] = field(default_factory=list)


@asynccontextmanager
async def lateness() -> AsyncIterator[Lateness]:
    """Measure the event loop's delay while the block runs."""
    pauses = Lateness()

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.wakes.append(time.perf_counter() - began - 0.001)
            pauses.worst = max(pauses.worst, pauses.wakes[-1])

    async with beside(watch()):
        await asyncio.sleep(0.05)
        pauses.worst = 0.0
        yield pauses


class TimedDisk(Disk):
    """A disk that records when each write ended, and how long it took."""

    spent = 0.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.written = threading.Event()

    def write(self, batch: Batch, *, is_durable: bool = False) -> None:
        began = time.perf_counter()
        super().write(batch, is_durable=is_durable)
        self.spent += time.perf_counter() - began
        self.written.set()


async def write_list(body: bytes, folder: Path) -> tuple[float, float]:
    """Measure the seconds to write a list from the cloud to disk, and the loop's longest pause meanwhile."""
    list_watch = ListWatch(ResourceType("discovery.k8s.io", "v1", "endpointslices"))
    codec = codec_for(Encoding.PROTOBUF)
    disk = TimedDisk(folder)
    copies = DiskCopies(DiskAccess(disk, DiskWriter()))
    await copies.open()
    store = Store()
    copies.copy("", list_watch, store)
    async with lateness() as pauses:
        page = await asyncio.to_thread(codec.decode_list, body)
        items = await read_items(store, codec, page.items)
        store.replace_items(codec, page.api_version, page.kind, page.version, items)
        await asyncio.to_thread(disk.written.wait)
    copies.access.close()
    return disk.spent, pauses.worst


def write_entries(folder: Path, *, is_durable: bool) -> float:
    """Measure the seconds to append a node's status to the journal; the median of SYNCS writes."""
    disk, entry, spent = Disk(folder), b"x" * ENTRY, []
    disk.open()
    for number in range(SYNCS):
        began = time.perf_counter()
        disk.write({"journal": TableChanges({str(number): entry})}, is_durable=is_durable)
        spent.append(time.perf_counter() - began)
    disk.close()
    return statistics.median(spent)


async def listed(http: aiohttp.ClientSession, url: str, count: int) -> bool:
    """Whether the hub's answers have all services and all slices."""
    with contextlib.suppress(aiohttp.ClientError):
        for path in (SERVICES, SLICES):
            async with http.get(f"{url}{path}?resourceVersion=0", headers=HEADERS) as answer:
                body = await answer.read()
                if answer.status != 200:
                    return False
                listed_items = len(codec_for(Encoding(answer.content_type)).decode_list(body).items)
                if listed_items < count:
                    return False
        return True
    return False


async def until_listed(url: str, count: int, timeout: float = 60.0) -> None:
    async with asyncio.timeout(timeout), session() as http:
        while True:
            if await listed(http, url, count):
                return
            await asyncio.sleep(0.02)


async def slices(url: str) -> bytes:
    """List the cloud's slices in protobuf, as the hub relays them."""
    async with session() as http:
        return (await listed_slices(http, url))[0]


@dataclass(frozen=True, slots=True)
class Carried:
    """Traffic of a link: all bytes, the bytes of bodies, and connections, each with a TLS handshake."""

    bytes: int = 0
    bodies: int = 0
    connections: int = 0


async def measure_link(hub: Hub, link: Link, count: int) -> tuple[Carried, Carried, list[float], float]:
    """Measure the traffic of a first start and of a restart online, the seconds of restarts offline, and the bytes per
    second of an idle link."""

    def moved() -> int:
        return link.traffic.up + link.traffic.down

    async def start() -> Carried:
        before, connections = moved(), link.traffic.accepted
        await asyncio.to_thread(hub.start)
        await until_listed(hub.url, count)
        await asyncio.sleep(QUIET)
        bodies = int(await asyncio.to_thread(hub.metric, "edgehub_upstream_bytes_total"))
        return Carried(moved() - before, bodies, link.traffic.accepted - connections)

    first = await start()
    await asyncio.to_thread(hub.stop)
    again = await start()
    await asyncio.to_thread(hub.stop)
    link.refuse()
    restarts = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        starting = asyncio.create_task(asyncio.to_thread(hub.start))
        await until_listed(hub.url, count)
        restarts.append(time.perf_counter() - began)
        await starting
        await asyncio.to_thread(hub.stop)
    link.carry()
    await asyncio.to_thread(hub.start)
    await asyncio.sleep(5 * QUIET)
    before = moved()
    await asyncio.sleep(IDLE)
    idle = (moved() - before) / IDLE
    await asyncio.to_thread(hub.stop)
    return first, again, restarts, idle


def measure_watches(
    cloud: RealCloud, folder: Path, services: int, watchers: int, updates: int
) -> tuple[list[float], list[float], bytes]:
    """Measure the p99 of watches of two hubs, with and without a disk, alternately; each round starts with the other
    hub.

    Also return the list of slices from the hub with a disk.
    """
    kubeconfig = cloud.node_kubeconfig("node-1")
    with (
        Hub(folder / "edge", cloud.url, kubeconfig=kubeconfig, flags=("--mode", "edge")) as caching,
        Hub(folder / "cloud", cloud.url, kubeconfig=kubeconfig, flags=("--mode", "cloud")) as uncached,
    ):
        samples: list[tuple[Hub, list[float]]] = [(caching, []), (uncached, [])]
        (_, with_disk), (_, without_disk) = samples
        several = min(services, WATCH_UPDATES * updates)
        for _ in range(WATCH_ROUNDS):
            for hub, seconds in samples:
                spent = asyncio.run(watches(hub.url, hub.process.pid, cloud, watchers, several))
                seconds.append(spent.p99)
            samples.reverse()
        return with_disk, without_disk, asyncio.run(slices(caching.url))


def measure(services: int, endpoints: int, watchers: int, updates: int) -> None:
    """Measure everything, and print the figures."""
    with hubs_cloud() as (cloud, folder):
        fill(cloud, services, endpoints)
        on_disk, in_memory, body = measure_watches(cloud, folder, services, watchers, updates)
        written = [asyncio.run(write_list(body, folder / f"disk-{number}")) for number in range(ROUNDS)]
        writer, pause = (statistics.median(seconds) for seconds in zip(*written, strict=True))
        synced = write_entries(folder / "synced", is_durable=True)
        unsynced = write_entries(folder / "unsynced", is_durable=False)
        with Link(cloud.host, cloud.port) as link:
            # No rule applies, so that the clients get all there is.
            kubeconfig = cloud.node_kubeconfig("node-1")
            hub = Hub(folder / "link", f"https://{LOOPBACK}:{link.port}", kubeconfig=kubeconfig)
            first, again, restarts, idle = asyncio.run(measure_link(hub, link, services))
    # The fastest round was disturbed least: clients, cloud and other processes share the cores, and only add time.
    with_disk, without = min(on_disk), min(in_memory)
    rows = [
        ("a list of all slices to disk, writer s", f"{writer:.3f}", "1"),
        ("  longest pause of the event loop, ms", f"{pause * 1e3:.1f}", "20"),
        ("an accepted write in the journal, synced, ms", f"{synced * 1e3:.1f}", ""),
        ("  not synced, ms", f"{unsynced * 1e3:.1f}", ""),
        ("watch event p99 with disk, ms", f"{with_disk * 1e3:.1f}", ""),
        ("  without disk, ms", f"{without * 1e3:.1f}", ""),
        ("  with / without", f"{with_disk / without:.2f}", "1.1"),
        ("offline restart to the first right answer, s", f"{statistics.median(restarts):.2f}", "2"),
        (f"bytes over the link, first start ({first.connections} connections)", f"{first.bytes}", ""),
        (f"  online restart ({again.connections} connections)", f"{again.bytes}", ""),
        ("  restart / first, %", f"{100 * again.bytes / first.bytes:.2f}", "2"),
        ("  the same without TLS and headers, %", f"{100 * again.bodies / first.bodies:.2f}", ""),
        ("idle link, bytes a second", f"{idle:.0f}", "150"),
    ]
    print(f"{'':54}{'measured':>12}{'wanted':>9}")
    for name, value, wanted in rows:
        print(f"{name:54}{value:>12}{wanted:>9}")
